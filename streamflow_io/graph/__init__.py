"""The I/O graph: steps, the ways of their files, stream edges, gangs and sites. Pure: plain data in, plain data out."""

from .edges import name_edges, plan_edges
from .gangs import Gang, find_gangs
from .io_graph import Delivery, Hop, HopKind, Input, Output, OutputKind, Route, Step, StreamEdge
from .possible import PossibleRoute, possible_routes
from .sites import Deployment, Site, SiteKind

__all__ = [
    "Delivery",
    "Deployment",
    "Gang",
    "Hop",
    "HopKind",
    "Input",
    "Output",
    "OutputKind",
    "PossibleRoute",
    "Route",
    "Site",
    "SiteKind",
    "Step",
    "StreamEdge",
    "find_gangs",
    "name_edges",
    "plan_edges",
    "possible_routes",
]
