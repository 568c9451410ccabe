"""The driver's side of the node runtimes: starting jobs under `sfio-node` and following what happens to them."""

from .embedded import EmbeddedRuntime, find_sfio_node
from .node_runtime import AttemptLostError, NodeJob, NodeRuntime, NodeRuntimeError
from .protocol import (
    Event,
    ExitEvent,
    FilePart,
    GatedInput,
    InputStream,
    JobSpec,
    Link,
    OutputRule,
    PartInput,
    PartitionedInput,
    WatchedOutput,
    readable,
)

__all__ = [
    "AttemptLostError",
    "EmbeddedRuntime",
    "Event",
    "ExitEvent",
    "FilePart",
    "GatedInput",
    "InputStream",
    "JobSpec",
    "Link",
    "NodeJob",
    "NodeRuntime",
    "NodeRuntimeError",
    "OutputRule",
    "PartInput",
    "PartitionedInput",
    "WatchedOutput",
    "find_sfio_node",
    "readable",
]
