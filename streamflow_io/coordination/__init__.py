"""What is coordinated between steps: the I/O graph, its stream edges and gangs. Pure: plain data in, plain data out."""

from .configuration import Configuration, CoordinatedFile, HomeNode
from .expansion import configure, stricter_than_served
from .gangs import Gang, find_gangs
from .graph import Delivery, Hop, HopKind, Input, Output, OutputKind, Route, Step, StreamEdge
from .known_jobs import KnownJobs
from .plan import name_edges, plan_edges
from .possible import PossibleRoute, possible_routes
from .sites import Deployment, Site, SiteKind

__all__ = [
    "Configuration",
    "CoordinatedFile",
    "Delivery",
    "Deployment",
    "Gang",
    "HomeNode",
    "Hop",
    "HopKind",
    "Input",
    "KnownJobs",
    "Output",
    "OutputKind",
    "PossibleRoute",
    "Route",
    "Site",
    "SiteKind",
    "Step",
    "StreamEdge",
    "configure",
    "find_gangs",
    "name_edges",
    "plan_edges",
    "possible_routes",
    "stricter_than_served",
]
