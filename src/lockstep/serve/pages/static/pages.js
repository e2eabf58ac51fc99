// Keeps a page up to date: the server sends sections that have changed, ready made, and each takes the old one's place.
"use strict";
(() => {
  const source = document.body.dataset.live;
  const connection = document.getElementById("connection");

  // What a person has opened, scrolled to or reached by keyboard stays as it is.
  const kept = (section) => ({
    open: [...section.querySelectorAll("details[open]")].map((one) => one.id),
    scrolled: [...section.querySelectorAll(".scroll, .wide-picture, pre")].map((one) => [one.scrollLeft, one.scrollTop]),
    focus: section.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null,
  });

  const restore = (section, before) => {
    before.open.forEach((id) => { const one = document.getElementById(id); if (one) one.open = true; });
    section.querySelectorAll(".scroll, .wide-picture, pre").forEach((one, index) => {
      const at = before.scrolled[index];
      if (at) { one.scrollLeft = at[0]; one.scrollTop = at[1]; }
    });
    if (before.focus) {
      const again = [...section.querySelectorAll("a")].find((one) => one.getAttribute("href") === before.focus);
      if (again) again.focus({ preventScroll: true });
    }
  };

  const replace = ({ id, html }) => {
    const old = document.getElementById(id);
    if (!old || old.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return;
    // Text that is selected is about to be copied.
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && selection.containsNode(old, true)) return;
    const before = kept(old);
    const made = document.createElement("template");
    made.innerHTML = html;
    const section = made.content.firstElementChild;
    if (!section) return;
    if (old.hasAttribute("aria-live")) {
      // An element that is replaced is not read out; one whose content changes is.
      old.replaceChildren(...section.childNodes);
      restore(old, before);
    } else {
      old.replaceWith(section);
      restore(section, before);
    }
  };

  // The newest is at the right: on a narrow screen it is what is seen first.
  document.querySelectorAll(".wide-picture").forEach((one) => { one.scrollLeft = one.scrollWidth; });

  if (source && window.EventSource) {
    const events = new EventSource(source + location.search);
    events.addEventListener("sections", (event) => { JSON.parse(event.data).forEach(replace); connection.textContent = ""; });
    events.addEventListener("error", () => { connection.textContent = "The connection is lost; trying again."; });
  }

  // A click into the columns of epochs leads to that epoch.
  document.addEventListener("click", (event) => {
    const strip = event.target.closest("svg.strip[data-epochs]");
    if (!strip) return;
    const box = strip.getBoundingClientRect();
    const index = Math.floor((event.clientX - box.left) / box.width * Number(strip.dataset.epochs));
    const job = location.pathname.split("/").slice(0, 3).join("/");
    location.assign(`${job}/epochs/${Number(strip.dataset.first) + index}`);
  });
})();
