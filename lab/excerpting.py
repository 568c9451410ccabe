"""`streamflow run` for which less is enough for a proof: first bytes of small files are tried before all of them."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from streamflow.core.workflow import CommandOutput
from streamflow.main import main as streamflow

from streamflow_io.proofs import repeated_job
from streamflow_io.proofs.repeated_job import RepeatedJob, SeenEvents
from streamflow_io.records.learned import extents

#: In bytes.
ENOUGH = 2**15


def main(arguments: list[str]) -> int:
    with patch.object(extents, "ENOUGH", ENOUGH):
        code: int = streamflow(arguments)
        return code


def give_up_late(arguments: list[str]) -> int:
    """Let each job end by itself before it is given up."""

    async def is_given_up(_: RepeatedJob, execution: asyncio.Task[CommandOutput], seen: SeenEvents) -> bool:
        await asyncio.wait([execution])
        return seen.is_decided.is_set()

    with patch.object(RepeatedJob, "_is_given_up", is_given_up):
        return main(arguments)


def impatient(arguments: list[str]) -> int:
    """Let a rehearsal take two seconds at most, however long the job took."""
    with patch.object(repeated_job, "seconds_for", lambda plain: 2):
        code: int = streamflow(arguments)
        return code
