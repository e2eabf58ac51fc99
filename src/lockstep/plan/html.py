"""A job drawn for a notebook: boxes and edges as one piece of SVG, without scripts, styles or files from elsewhere.

Text and lines take the colour of the page around them, so it looks right on white and on black.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from lockstep.plan.draw import MEANINGS, described, mark_kind
from lockstep.plan.graph import Graph
from lockstep.plan.loops import LoopEnd
from lockstep.plan.steps import Step, upstream

_COLORS = {"source": "#2f9e44", "step": "#868e96", "stateful": "#1c7ed6", "python": "#e8590c", "sink": "#9c36b5"}
"""One for each kind; each is readable on white and on black."""
_FONT = "font-family:system-ui,sans-serif;font-size:12px"
_BOX_WIDTH = 250
_LINE_HEIGHT = 15
_LINE_CHARACTERS = 38
"""What fits a box at this size; a wider letter than the average is clipped by nothing, so a little room is left."""
_LINES_MAX = 3
_GAP_X = 26
_GAP_Y = 30
_PASSING_WIDTH = 18
"""Room for an edge that passes a layer without a box in it."""


@dataclass(eq=False)
class _Node:
    """A box, or a point where an edge passes a layer."""

    step: Step | None
    layer: int
    order: int
    before: list[_Node] = field(default_factory=list)
    x: float = 0.0

    @property
    def lines(self) -> list[str]:
        if self.step is None:
            return []
        lines = textwrap.wrap(described(self.step), _LINE_CHARACTERS, break_on_hyphens=False)
        if len(lines) <= _LINES_MAX:
            return lines
        return [*lines[: _LINES_MAX - 1], lines[_LINES_MAX - 1][: _LINE_CHARACTERS - 1].rstrip() + "…"]

    @property
    def width(self) -> int:
        return _PASSING_WIDTH if self.step is None else _BOX_WIDTH

    @property
    def height(self) -> int:
        return 0 if self.step is None else 14 + _LINE_HEIGHT * (1 + len(self.lines))


def graph_html(graph: Graph) -> str:
    """The job as HTML: what ``Job._repr_html_`` shows."""
    cuts = {pair for stage in graph.stages for pair in stage.cuts}
    stages = f", {len(graph.stages)} stages" if len(graph.stages) > 1 else ""
    return _page(f"job {graph.name}{stages}", graph.steps, cuts)


def stream_html(step: Step, title: str) -> str:
    """A stream as HTML: the steps that lead to it."""
    steps = sorted({id(one): one for one in upstream(step)}.values(), key=lambda one: one.order)
    return _page(title, steps, set())


def text_html(text: str) -> str:
    """A line of text as HTML.

    >>> text_html("<job empty>").endswith("&lt;job empty&gt;</div>")
    True
    """
    return f'<div style="{_FONT}">{escape(text)}</div>'


def _page(title: str, steps: Sequence[Step], cuts: set[tuple[int, int]]) -> str:
    layers = _layers(steps)
    width = max(_layer_width(layer) for layer in layers)
    tops = _place(layers, width)
    height = tops[-1] + max(node.height for node in layers[-1])
    nodes = [node for layer in layers for node in layer]
    body = [*_edges(nodes, tops, cuts), *_loops(nodes, tops), *(_box(node, tops[node.layer]) for node in nodes)]
    margin = 4
    return (
        f'<div style="{_FONT};overflow-x:auto"><div style="margin-bottom:6px">{escape(title)}</div>'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'width="{width + 2 * margin:.0f}" height="{height + 2 * margin:.0f}" '
        f'viewBox="{-margin} {-margin} {width + 2 * margin:.0f} {height + 2 * margin:.0f}" style="{_FONT}">'
        f"{''.join(body)}</svg>{_legend(steps, cuts)}</div>"
    )


def _layers(steps: Sequence[Step]) -> list[list[_Node]]:
    """The steps in layers, each below its inputs, with points where longer edges pass the layers between."""
    depth = _depths(steps)
    layers: list[list[_Node]] = [[] for _ in range(max(depth.values()) + 1)]
    nodes: dict[int, _Node] = {}
    for step in steps:
        node = nodes[id(step)] = _Node(step, depth[id(step)], step.order)
        for before in dict.fromkeys(step.inputs):
            node.before.append(_passed(nodes[id(before)], node, layers))
        layers[node.layer].append(node)
    for layer in layers[1:]:
        _arrange(layer, layers)
    return layers


def _depths(steps: Sequence[Step]) -> dict[int, int]:
    depth: dict[int, int] = {}
    for step in steps:
        depth[id(step)] = max((depth[id(before)] + 1 for before in step.inputs), default=0)
    for step in reversed(steps):
        # A source stands right above its first reader, not at the top of the page.
        readers = [depth[id(one)] for one in steps if step in one.inputs]
        if not step.inputs and readers:
            depth[id(step)] = min(readers) - 1
    return depth


def _passed(above: _Node, below: _Node, layers: list[list[_Node]]) -> _Node:
    """The last point of the edge from one to the other, above the lower one."""
    last = above
    for layer in range(above.layer + 1, below.layer):
        last = _Node(None, layer, below.order, [last])
        layers[layer].append(last)
    return last


def _arrange(layer: list[_Node], layers: list[list[_Node]]) -> None:
    """Put each node below the middle of its inputs: fewer edges cross."""
    places = {id(node): index / max(1, len(above) - 1) for above in layers for index, node in enumerate(above)}

    def middle(node: _Node) -> tuple[float, int]:
        above = [places[id(before)] for before in node.before]
        return (sum(above) / len(above) if above else 0.5, node.order)

    layer.sort(key=middle)


def _layer_width(layer: Sequence[_Node]) -> int:
    return sum(node.width for node in layer) + _GAP_X * (len(layer) - 1)


def _place(layers: list[list[_Node]], width: int) -> list[int]:
    """Give every node its x; the tops of the layers come back."""
    tops, top = [], 0
    for layer in layers:
        x = (width - _layer_width(layer)) / 2
        for node in layer:
            node.x = x + node.width / 2
            x += node.width + _GAP_X
        tops.append(top)
        top += max(node.height for node in layer) + _GAP_Y
    return tops


def _edges(nodes: Iterable[_Node], tops: list[int], cuts: set[tuple[int, int]]) -> list[str]:
    drawn = []
    for node in nodes:
        for before in node.before:
            reader, read = _ends(node, before, nodes)
            dashed = ' stroke-dasharray="5 4"' if (id(reader), id(read)) in cuts else ""
            start, end = tops[before.layer] + before.height, tops[node.layer]
            bend = (start + end) / 2
            path = f"M{before.x:.0f} {start}C{before.x:.0f} {bend:.0f} {node.x:.0f} {bend:.0f} {node.x:.0f} {end}"
            if node.step is None:
                # Straight on past the boxes of this layer.
                path += f"V{tops[node.layer + 1] - _GAP_Y}"
            drawn.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.55"{dashed}/>')
    return drawn


def _ends(node: _Node, before: _Node, nodes: Iterable[_Node]) -> tuple[Step | None, Step | None]:
    """The steps at the two ends of the edge that this piece belongs to."""
    lower, upper = node, before
    while lower.step is None:
        lower = next(one for one in nodes if lower in one.before)
    while upper.step is None:
        upper = upper.before[0]
    return lower.step, upper.step


def _loops(nodes: Sequence[_Node], tops: list[int]) -> list[str]:
    """A dotted line from the end of a loop back to its head."""
    at = {id(node.step): node for node in nodes if node.step is not None}
    drawn = []
    for node in nodes:
        if isinstance(node.step, LoopEnd) and id(node.step.head) in at:
            head = at[id(node.step.head)]
            start_x, end_x = node.x - node.width / 2, head.x - head.width / 2
            start_y, end_y = tops[node.layer] + node.height / 2, tops[head.layer] + head.height / 2
            out = max(0.0, min(start_x, end_x) - 40)
            path = f"M{start_x:.0f} {start_y:.0f}C{out:.0f} {start_y:.0f} {out:.0f} {end_y:.0f} {end_x:.0f} {end_y:.0f}"
            drawn.append(
                f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.55" stroke-dasharray="2 4"/>'
            )
    return drawn


def _box(node: _Node, top: int) -> str:
    if node.step is None:
        return ""
    left, color = node.x - node.width / 2, _COLORS[mark_kind(node.step)]
    lines = "".join(
        f'<text x="{left + 14:.0f}" y="{top + 18 + _LINE_HEIGHT * number}" fill="currentColor" fill-opacity="0.75">'
        f"{escape(line)}</text>"
        for number, line in enumerate(node.lines, start=1)
    )
    return (
        f"<g><title>{escape(f'{node.step.id}: {described(node.step)}')}</title>"
        f'<rect x="{left:.0f}" y="{top}" width="{node.width}" height="{node.height}" rx="5" fill="currentColor" '
        f'fill-opacity="0.06" stroke="currentColor" stroke-opacity="0.3"/>'
        f'<rect x="{left:.0f}" y="{top}" width="5" height="{node.height}" rx="2.5" fill="{color}"/>'
        f'<text x="{left + 14:.0f}" y="{top + 18}" fill="currentColor" font-weight="600">{escape(node.step.id)}</text>'
        f"{lines}</g>"
    )


def _legend(steps: Iterable[Step], cuts: set[tuple[int, int]]) -> str:
    used = {mark_kind(step) for step in steps}
    parts = [
        f'<span style="display:inline-block;width:9px;height:9px;border-radius:2px;background:{_COLORS[kind]}"></span> '
        f"{escape(meaning)}"
        for kind, meaning in MEANINGS.items()
        if kind in used
    ]
    if cuts:
        parts.append("- - through a journal, to a later stage")
    return f'<div style="margin-top:6px;opacity:0.8">{" &#160; ".join(parts)}</div>'
