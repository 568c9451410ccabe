"""Where the nodes of a graph are drawn: each below those before it (Sugiyama, Tagawa and Toda 1981). Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# How often the layers are put into a better order, down and up.
_SWEEPS = 6


@dataclass(frozen=True)
class Layout:
    """
    :ivar layers: of each node, from 0 at the top
    :ivar columns: of each node, its place in its layer, with fractions: 0 is the middle
    :ivar bends: by edge, the columns where it passes the layers between its nodes, from the top
    """

    layers: dict[str, int]
    columns: dict[str, float]
    bends: dict[tuple[str, str], list[float]]


def layout(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Layout:
    """Put each node below all that come before it; edges against the order of a cycle, as of a loop, do not count."""
    layers, forward = _layers(nodes, edges)
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in nodes:
        rows[layers[node]].append(node)
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    passed: dict[tuple[str, str], list[str]] = {}
    for source, target in forward:
        chain = [source]
        for layer in range(layers[source] + 1, layers[target]):
            # What stands for an edge where it passes a layer.
            chain.append(f"{source}\n{target}\n{layer}")
            rows[layer].append(chain[-1])
        passed[source, target] = chain[1:]
        for upper, lower in zip(chain, [*chain[1:], target], strict=True):
            above[lower].append(upper)
            below[upper].append(lower)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        beside = above if down else below
        order = rows if down else rows[::-1]
        for before, row in itertools.pairwise(order):
            place = {node: index / max(1, len(before) - 1) for index, node in enumerate(before)}
            now = {node: index / max(1, len(row) - 1) for index, node in enumerate(row)}
            row.sort(key=lambda node: _middle([place[one] for one in beside[node] if one in place], now[node]))
    columns = _columns(rows, above, below)
    bends = {edge: [columns[one] for one in chain] for edge, chain in passed.items()}
    return Layout(layers, {node: columns[node] for node in nodes}, bends)


def _middle(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _layers(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The length of the longest way to each node, and the edges that go forward."""
    known = set(nodes)
    after: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in dict.fromkeys(edges):
        if source in known and target in known and source != target:
            after[source].append(target)
    order, backward = _order(nodes, after)
    layers = dict.fromkeys(nodes, 0)
    forward = []
    for node in order:
        for target in after[node]:
            if (node, target) not in backward:
                layers[target] = max(layers[target], layers[node] + 1)
                forward.append((node, target))
    return layers, forward


def _order(nodes: Sequence[str], after: defaultdict[str, list[str]]) -> tuple[list[str], set[tuple[str, str]]]:
    """The nodes, each after those before it, and the edges that close a cycle."""
    backward: set[tuple[str, str]] = set()
    done: list[str] = []
    state: dict[str, int] = {}
    for first in nodes:
        todo = [] if first in state else [(first, iter(after[first]))]
        state.setdefault(first, 1)
        while todo:
            node, others = todo[-1]
            other = next(others, None)
            if other is None:
                todo.pop()
                state[node] = 2
                done.append(node)
            elif other not in state:
                state[other] = 1
                todo.append((other, iter(after[other])))
            elif state[other] == 1:
                backward.add((node, other))
    return done[::-1], backward


def _columns(
    rows: Sequence[Sequence[str]], above: defaultdict[str, list[str]], below: defaultdict[str, list[str]]
) -> dict[str, float]:
    """A column for each, at least 1 beside its neighbours (0.5 where only an edge passes), near to what it is joined
    with."""
    columns: dict[str, float] = {}
    for row in rows:
        _spread(columns, row, {})
    for sweep in range(_SWEEPS):
        order = rows if sweep % 2 == 0 else rows[::-1]
        beside = above if sweep % 2 == 0 else below
        for row in order:
            wanted = {node: _middle([columns[one] for one in beside[node]], columns[node]) for node in row}
            _spread(columns, row, wanted)
    return columns


def _spread(columns: dict[str, float], row: Sequence[str], wanted: dict[str, float]) -> None:
    """Put the nodes of a row as near to their wanted columns as their order and distances allow."""
    offsets = [0.0]
    for one, other in itertools.pairwise(row):
        offsets.append(offsets[-1] + _distance(one, other))
    if not row:
        return
    middle = offsets[-1] / 2
    targets = [wanted.get(node, offset - middle) - offset for node, offset in zip(row, offsets, strict=True)]
    # The best places that keep the order are means of neighbours that would be too near (pool adjacent violators).
    blocks: list[tuple[float, int]] = []
    for target in targets:
        mean, count = target, 1
        while blocks and blocks[-1][0] > mean:
            before, members = blocks.pop()
            mean, count = (before * members + mean * count) / (members + count), members + count
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    for node, offset, mean in zip(row, offsets, means, strict=True):
        columns[node] = mean + offset


def _distance(one: str, other: str) -> float:
    edges = ("\n" in one) + ("\n" in other)
    return (1.0, 0.7, 0.35)[edges]
