"""The driver's side of the node runtimes: starting jobs under `sfio-node` and following what happens to them."""

from .embedded import EmbeddedRuntime, NodeJob, NodeRuntimeError, find_sfio_node
from .protocol import Event, ExitEvent, GatedInput, InputStream, JobSpec, OutputRule, WatchedOutput

__all__ = [
    "EmbeddedRuntime",
    "Event",
    "ExitEvent",
    "GatedInput",
    "InputStream",
    "JobSpec",
    "NodeJob",
    "NodeRuntimeError",
    "OutputRule",
    "WatchedOutput",
    "find_sfio_node",
]
