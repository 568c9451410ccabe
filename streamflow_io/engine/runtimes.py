"""The node runtimes of features: which edges of a workflow each of them serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

from msgspec import Struct, field
from streamflow.core.workflow import Workflow

from streamflow_io.graph.io_graph import StreamEdge
from streamflow_io.installed_features import runtimes
from streamflow_io.runtime.node_runtimes import StartRuntime


class RuntimeChoice(Struct, frozen=True):
    """The work of a feature's node runtime in a run.

    :ivar start: starts the node runtime of the driver's node; `None` starts the embedded one
    :ivar edges: :data:`~.records.SERVED` for each early edge that the runtime serves; for others the reason
    """

    start: StartRuntime | None = None
    edges: Mapping[StreamEdge, str] = field(default_factory=dict)


class RuntimeForecast(Struct, frozen=True):
    """The edges that a node runtime would serve, for `streamflow-io plan`.

    :ivar name: of the runtime, for people
    :ivar condition: the condition for that
    :ivar served: the early edges that the runtime would serve
    :ivar refused: the other early edges, with the reasons
    """

    name: str
    condition: str
    served: tuple[StreamEdge, ...]
    refused: Mapping[StreamEdge, str]


class RuntimeModule(Protocol):
    """A module of a feature that has a node runtime."""

    def choose(self, workflow: Workflow, edges: Sequence[StreamEdge]) -> RuntimeChoice:
        """Decide what the runtime serves in a run, and warn of each early edge that the runtime does not serve."""

    def forecast(self, workflow: Workflow, edges: Sequence[StreamEdge]) -> RuntimeForecast:
        """Say what the runtime would serve. Start nothing."""


def runtime_module(runtime: str) -> RuntimeModule | None:
    """Find the module that serves a value of `runtime`; `None` leaves all to the core."""
    module = runtimes().get(runtime)
    return None if module is None else cast(RuntimeModule, import_module(module))
