"""The StreamFlow plugin: registers what StreamFlow shall find, nothing else."""

from __future__ import annotations

from streamflow.ext.plugin import StreamFlowPlugin

from streamflow_io.run.scheduler import IOAwareScheduler
from streamflow_io.translation.translator import IOAwareTranslator

from ._streamflow import install_translator


class StreamFlowIOPlugin(StreamFlowPlugin):  # type: ignore[misc]
    """Registers the scheduler of type `io-aware`, and the translator that does something only under that scheduler."""

    def register(self) -> None:
        self.register_scheduler("io-aware", IOAwareScheduler)
        install_translator(IOAwareTranslator)
