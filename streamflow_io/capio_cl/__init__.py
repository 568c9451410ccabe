"""The coordination configuration of a workflow, and CAPIO-CL, the language it is written in. Pure, but for `files`."""

from .applications import KnownJobs
from .configuration import Configuration, CoordinatedFile, HomeNode
from .from_graph import configure, stricter_than_served

__all__ = ["Configuration", "CoordinatedFile", "HomeNode", "KnownJobs", "configure", "stricter_than_served"]
