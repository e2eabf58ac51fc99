"""Where in a query something stands, and errors that point there."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from lockstep.errors import ExpressionError, PlanError

_INDENT = "  "


@dataclass(frozen=True)
class Span:
    """A part of a text: from ``start`` up to, but not with, ``end``."""

    start: int
    end: int


@dataclass(frozen=True)
class QueryText:
    """The text of a query, for errors that show the place."""

    text: str

    def error(
        self, code: str, fact: str, place: exp.Expression | Span | None, *, why: str = "", hint: str = ""
    ) -> ExpressionError:
        """An error that shows the line of the text and marks the place in it."""
        shown = self.shown(place)
        return ExpressionError(code, fact, why="\n".join(part for part in (shown, why) if part), hint=hint)

    def located(self, error: PlanError | ExpressionError, place: exp.Expression) -> PlanError | ExpressionError:
        """The same error, with the place in the query added."""
        why = "\n".join(part for part in (self.shown(place), error.why) if part)
        return type(error)(error.code, error.fact, why=why, hint=error.hint)

    def shown(self, place: exp.Expression | Span | None) -> str:
        """The line and column, the line itself, and a line with carets under the place; empty without a place.

        >>> print(QueryText("select usr from logins").shown(Span(7, 10)))
        line 1, column 8 of the query:
          select usr from logins
                 ^^^
        """
        span = span_of(place) if isinstance(place, exp.Expression) else place
        if span is None:
            return ""
        line_start = self.text.rfind("\n", 0, span.start) + 1
        line_end = self.text.find("\n", span.start)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        number, column = self.text.count("\n", 0, span.start) + 1, span.start - line_start
        # A place may go on in the next line: the carets end with this one.
        width = max(1, min(span.end, line_start + len(line.rstrip())) - span.start)
        margin = len(line) - len(line.lstrip())
        return "\n".join(
            [
                f"line {number}, column {column + 1} of the query:",
                _INDENT + line.strip(),
                _INDENT + " " * (column - margin) + "^" * width,
            ]
        )

    def keyword(self, word: str, before: exp.Expression) -> Span | exp.Expression:
        """The last ``word`` before a part of the query (``ORDER BY`` before what it orders by), else that part."""
        span = span_of(before)
        end = span.start if span is not None else len(self.text)
        start = self.text.lower().rfind(word.lower().split()[0], 0, end)
        return Span(start, start + len(word)) if start >= 0 else before


def span_of(node: exp.Expression) -> Span | None:
    """From the first to the last thing inside ``node`` whose place is known."""
    own = _own_span(node)
    if own is not None and isinstance(node, exp.Anonymous):
        return own
    spans = [span for inside in node.walk() if (span := _own_span(inside)) is not None]
    if not spans:
        return None
    return Span(min(span.start for span in spans), max(span.end for span in spans))


def _own_span(node: exp.Expression) -> Span | None:
    start, end = node.meta.get("start"), node.meta.get("end")
    return None if start is None or end is None else Span(start, end + 1)
