"""`streamflow run` in which the first job of the step `b` does not reach its producer.

Between hosts it is a network or a firewall that keeps a job from its producer.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from streamflow.main import main as streamflow

from streamflow_io.jobs.reach import Reach

_can_read = Reach.can_read


async def _refuse(self: Reach, job: Any, *others: Any) -> bool:
    return job.name != "/b/0.0" and await _can_read(self, job, *others)


def main(arguments: list[str]) -> int:
    with patch.object(Reach, "can_read", _refuse):
        code: int = streamflow(arguments)
        return code
