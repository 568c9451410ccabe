"""The StreamFlow plugin: registers what StreamFlow shall find, nothing else."""

from __future__ import annotations

from collections.abc import MutableSequence

from streamflow.core.context import StreamFlowContext
from streamflow.core.persistence import DatabaseLoadingContext
from streamflow.core.provenance import ProvenanceManager
from streamflow.core.workflow import Workflow
from streamflow.ext.plugin import StreamFlowPlugin

from streamflow_io._streamflow import install_provenance, install_translator
from streamflow_io.engine.scheduler import IOAwareScheduler
from streamflow_io.engine.translator import IOAwareTranslator
from streamflow_io.runtime.allocation.connector import AllocationConnector


def crate_writer(
    context: StreamFlowContext, db_context: DatabaseLoadingContext, workflows: MutableSequence[Workflow]
) -> ProvenanceManager:
    """The writer of crates.

    StreamFlow imports every plugin in every command: what only the writer needs is imported here.
    """
    from streamflow_io.engine.provenance import StreamedRunCrate

    return StreamedRunCrate(context, db_context, workflows)


class StreamFlowIOPlugin(StreamFlowPlugin):  # type: ignore[misc]
    """Registers the scheduler `sfio.io-aware`, the translator, which acts only under it, and the writer of crates.

    Registers the deployment type `sfio.allocation`, too.
    """

    def register(self) -> None:
        self.register_scheduler("sfio.io-aware", IOAwareScheduler)
        # Other modules use `ALLOCATION`, which is not imported here: StreamFlow imports this module in every command.
        self.register_connector("sfio.allocation", AllocationConnector)
        install_translator(IOAwareTranslator)
        install_provenance(crate_writer)
