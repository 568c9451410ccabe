"""What is coordinated between steps: the I/O graph, its stream edges and gangs. Pure: plain data in, plain data out."""

from .gangs import Gang, find_gangs
from .graph import Delivery, Hop, HopKind, Input, Output, OutputKind, Route, Step, StreamEdge
from .plan import plan_edges
from .possible import PossibleRoute, possible_routes

__all__ = [
    "Delivery",
    "Gang",
    "Hop",
    "HopKind",
    "Input",
    "Output",
    "OutputKind",
    "PossibleRoute",
    "Route",
    "Step",
    "StreamEdge",
    "find_gangs",
    "plan_edges",
    "possible_routes",
]
