"""HTML out of functions: whatever is not HTML already is escaped, so nothing that a user wrote can become markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "link", "input", "br", "hr"})


class Html(str):
    """Text that is HTML. Only :func:`el`, :func:`join` and constants of this package make it."""

    __slots__ = ()


Child = Html | str | int | None | Iterable["Child"]
EMPTY = Html("")


def el(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """An element. ``class_`` becomes ``class``, ``aria_label`` becomes ``aria-label``; what is None or False is absent.

    >>> el("p", "a < b, ", el("b", 3), class_="note", hidden=False)
    '<p class="note">a &lt; b, <b>3</b></p>'
    >>> el("a", "<script>", href='"><script>')
    '<a href="&quot;&gt;&lt;script&gt;">&lt;script&gt;</a>'
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Several things one after the other.

    >>> join(["1 < 2", None, [Html("<hr>"), 7]])
    '1 &lt; 2<hr>7'
    """
    return Html("".join(_child(one) for one in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int):
        return escape(str(child))
    return join(child)


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
