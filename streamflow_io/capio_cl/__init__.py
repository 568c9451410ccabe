"""The coordination configuration of a workflow, and CAPIO-CL, in which it is written. Pure, but for `loading`."""

from .applications import KnownJobs
from .configuration import Configuration, CoordinatedFile, HomeNode
from .from_graph import configure, stricter_than_served

__all__ = ["Configuration", "CoordinatedFile", "HomeNode", "KnownJobs", "configure", "stricter_than_served"]
