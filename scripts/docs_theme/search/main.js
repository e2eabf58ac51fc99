// The search of the documentation. MkDocs' own reads its index in a worker, which browsers refuse for pages that are
// opened from a folder. This one reads the index as a script, so that the site needs no server and no network.
"use strict";

(function () {
  const RESULTS_MAX = 50, SHOWN_CHARACTERS = 220;
  const folder = new URL(".", document.currentScript.src);

  /** The sections that have all words, those with the words in their titles first. */
  function found(sections, words) {
    const scored = [];
    for (const section of sections) {
      const title = section.title.toLowerCase(), text = section.text.toLowerCase();
      if (words.every((word) => title.includes(word) || text.includes(word))) {
        const inTitle = words.filter((word) => title.includes(word)).length;
        const inText = words.reduce((sum, word) => sum + Math.min(text.split(word).length - 1, 9), 0);
        scored.push({ section, score: 10 * inTitle + inText });
      }
    }
    return scored.sort((a, b) => b.score - a.score).slice(0, RESULTS_MAX).map((one) => one.section);
  }

  /** A result: the title as a link, and the text around the first word. */
  function result(section, words) {
    const at = Math.max(0, section.text.toLowerCase().indexOf(words[0]) - 60);
    const article = document.createElement("article");
    const link = document.createElement("a");
    link.href = new URL("../" + section.location, folder).href;
    link.textContent = section.title;
    const heading = document.createElement("h3");
    heading.append(link);
    const text = document.createElement("p");
    text.textContent = (at ? "… " : "") + section.text.slice(at, at + SHOWN_CHARACTERS).trim() + " …";
    article.append(heading, text);
    return article;
  }

  function search(input, list, sections) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.length ? found(sections, words) : [];
    list.replaceChildren(...hits.map((section) => result(section, words)));
    if (words.length && !hits.length) {
      list.textContent = "Nothing found.";
    }
  }

  document.addEventListener("DOMContentLoaded", function () {
    const list = document.getElementById("mkdocs-search-results");
    const input = document.getElementById("mkdocs-search-query");
    if (!list || !input) {
      return; // Other pages only have a box that leads to the page of results.
    }
    const index = document.createElement("script");
    index.src = new URL("search_index.js", folder).href;
    index.onload = function () {
      input.value = new URLSearchParams(window.location.search).get("q") || "";
      input.addEventListener("input", () => search(input, list, window.SEARCH_INDEX));
      search(input, list, window.SEARCH_INDEX);
    };
    document.head.append(index);
  });
})();
