"""The StreamFlow plugin: registers what StreamFlow shall find, nothing else."""

from __future__ import annotations

from streamflow.ext.plugin import StreamFlowPlugin

from streamflow_io.run.scheduler import IOAwareScheduler
from streamflow_io.translation.provenance import StreamedRunCrate
from streamflow_io.translation.translator import IOAwareTranslator

from ._streamflow import install_provenance, install_translator


class StreamFlowIOPlugin(StreamFlowPlugin):  # type: ignore[misc]
    """Registers the scheduler `io-aware`, the translator, which acts only under it, and the writer of crates."""

    def register(self) -> None:
        self.register_scheduler("io-aware", IOAwareScheduler)
        install_translator(IOAwareTranslator)
        install_provenance(StreamedRunCrate)
