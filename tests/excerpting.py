"""`streamflow run` in which the first bytes of small files are tried before all of them, as those of large ones are."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from streamflow.core.workflow import CommandOutput
from streamflow.main import main as streamflow

from streamflow_io.run import excerpt_rules
from streamflow_io.run.excerpt_rules import Sizes
from streamflow_io.run.rehearsal_events import Seen
from streamflow_io.run.repeated_job import RepeatedJob


def main(arguments: list[str]) -> int:
    with patch.object(excerpt_rules, "SIZES", Sizes(smallest=256, share=4, least=64)):
        code: int = streamflow(arguments)
        return code


def give_up_late(arguments: list[str]) -> int:
    """Who is given up has always ended by itself before he could be told."""

    async def is_given_up(_: RepeatedJob, execution: asyncio.Task[CommandOutput], seen: Seen) -> bool:
        await asyncio.wait([execution])
        return seen.is_decided.is_set()

    with patch.object(RepeatedJob, "_is_given_up", is_given_up):
        return main(arguments)
