"""Gangs: steps that run at the same time because bytes flow between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from .graph import Delivery, Step, StreamEdge


@dataclass(frozen=True)
class Gang:
    """Steps joined by streams.

    :ivar steps: paths, producers before consumers
    :ivar heads: those that read no stream; they need their cores
    :ivar cores: what the heads need at once, for one job each; None if that is known only at run time
    """

    steps: tuple[str, ...]
    heads: tuple[str, ...]
    cores: float | None


def find_gangs(edges: Iterable[StreamEdge], steps: Mapping[str, Step]) -> tuple[Gang, ...]:
    """Find the steps that are co-scheduled.

    :param edges: all stream edges
    :param steps: steps by path
    :return: the connected components of the steps under streamed edges, in the order of the paths
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    for edge in edges:
        if edge.delivery is Delivery.STREAM and edge.route.consumer is not None:
            graph.add_edge(edge.route.output.step, edge.route.consumer.step)
    gangs = []
    for component in nx.weakly_connected_components(graph):
        members = graph.subgraph(component)
        order = tuple(nx.lexicographical_topological_sort(members))
        heads = tuple(step for step in order if members.in_degree(step) == 0)
        cores = [steps[head].cores for head in heads]
        known = [number for number in cores if number is not None]
        gangs.append(Gang(order, heads, sum(known) if len(known) == len(cores) else None))
    return tuple(sorted(gangs, key=lambda gang: gang.steps))
