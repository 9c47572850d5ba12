"""Small graphs, top down: states of a lease, parts of a program. A node stands below all that lead to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from tools.site.svg import CHARACTER, LINE, box, broken, line, picture, text

__all__ = ["draw_graph"]

EDGE = re.compile(
    r"(?P<source>\w+|\[\*\])(?:\[\"?(?P<from>[^\]\"]+)\"?\])? *(?P<arrow>-->|---|-\.->)"
    r"(?: *\|(?P<inner>[^|]+)\|)? *(?P<target>\w+|\[\*\])(?:\[\"?(?P<to>[^\]\"]+)\"?\])?(?: *: *(?P<label>.+))?$"
)
NODE = re.compile(r"(?P<name>\w+)\[\"?(?P<words>[^\]\"]+)\"?\]$")
WIDEST, GAP, STEP = 220, 36, 62  # of a box; between boxes of a row; between rows


@dataclass
class _Graph:
    words: dict[str, str] = field(default_factory=dict)
    edges: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    plain: set[tuple[str, str]] = field(default_factory=set)  # edges without a head

    def lines(self, name: str) -> list[str]:
        return broken(self.words[name], WIDEST - 24)

    def width(self, name: str) -> float:
        return 14 if self.is_end(name) else max(len(each) for each in self.lines(name)) * CHARACTER + 28

    def height(self, name: str) -> float:
        return 14 if self.is_end(name) else len(self.lines(name)) * LINE + 14

    def is_end(self, name: str) -> bool:
        return name in {"[*] start", "[*] end"}


def draw_graph(lines: list[str]) -> str:
    """The diagram as SVG."""
    graph = _read(lines)
    rows = _rows(graph)
    width = max(_row_width(graph, row) for row in rows) + 40
    places: dict[str, tuple[float, float]] = {}
    y = 8.0
    for row in rows:
        x = (width - _row_width(graph, row)) / 2
        for name in row:
            places[name] = (x + graph.width(name) / 2, y)
            x += graph.width(name) + GAP
        y += max(graph.height(name) for name in row) + STEP
    edges = [_draw_edge(graph, places, pair, labels) for pair, labels in graph.edges.items()]
    nodes = [_draw_node(graph, name, *place) for name, place in places.items()]
    title = "Diagram of " + ", ".join(words for name, words in graph.words.items() if not graph.is_end(name))
    return picture([*edges, *nodes], width, y - STEP + 8, title)


def _read(lines: list[str]) -> _Graph:
    graph = _Graph()
    for each in lines:
        if found := EDGE.match(each):
            source = _named(graph, "[*] start" if found["source"] == "[*]" else found["source"], found["from"])
            target = _named(graph, "[*] end" if found["target"] == "[*]" else found["target"], found["to"])
            labels = graph.edges.setdefault((source, target), [])
            labels += [label for label in (found["label"], found["inner"]) if label]
            if found["arrow"] == "---":
                graph.plain.add((source, target))
        elif found := NODE.match(each):
            _named(graph, found["name"], found["words"])
        else:
            raise ValueError(f"this line of a diagram is not known to the site: {each!r}")
    return graph


def _named(graph: _Graph, name: str, words: str | None) -> str:
    if words or name not in graph.words:
        graph.words[name] = words or name
    return name


def _rows(graph: _Graph) -> list[list[str]]:
    """The nodes by their distance from the top; within a row in the order of what leads to them."""
    depth = dict.fromkeys(graph.words, 0)
    for _ in graph.words:  # as often as the longest way has nodes; a circle ends there as well
        for source, target in graph.edges:
            if source != target and depth[target] <= depth[source] < len(graph.words) - 1:
                depth[target] = depth[source] + 1
    rows = [[name for name in graph.words if depth[name] == level] for level in sorted(set(depth.values()))]
    for above, row in pairwise(rows):
        row.sort(key=lambda name: _middle(graph, above, name))
    return rows


def _middle(graph: _Graph, above: list[str], name: str) -> float:
    places = [above.index(source) for source, target in graph.edges if target == name and source in above]
    return sum(places) / len(places) if places else len(above)


def _row_width(graph: _Graph, row: list[str]) -> float:
    return sum(graph.width(name) for name in row) + GAP * (len(row) - 1)


def _draw_node(graph: _Graph, name: str, x: float, y: float) -> str:
    if graph.is_end(name):
        return f'<circle class="end" cx="{x:g}" cy="{y + 7:g}" r="7"/>'
    return box(graph.lines(name), x, y, graph.width(name))


def _draw_edge(graph: _Graph, places: dict[str, tuple[float, float]], pair: tuple[str, str], labels: list[str]) -> str:
    (x, y), (to_x, to_y) = places[pair[0]], places[pair[1]]
    y += graph.height(pair[0])
    bend = (to_y - y) / 2
    head = "" if pair in graph.plain else "arrow"
    drawn = line(f"M{x:g} {y:g}C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}", "line", head)
    if not labels:
        return drawn
    words = " or ".join(labels)
    middle, half = ((x + to_x) / 2, (y + to_y) / 2), len(words) * CHARACTER / 2 + 4
    ground = f'<rect class="ground" x="{middle[0] - half:g}" y="{middle[1] - 10:g}" width="{2 * half:g}" height="20"/>'
    return drawn + ground + text([words], middle[0], middle[1] + 5, "faint")
