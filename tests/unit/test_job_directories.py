"""The directories in which the commands of jobs run."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.workflow import Job, Workflow
from streamflow.deployment.connector.local import LocalConnector

from streamflow_io.adapters.jobs import JobState
from streamflow_io.jobs.job_directories import JobDirectories

HERE = ExecutionLocation("__LOCAL__", "__LOCAL__", local=True)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_command_that_runs_in_the_directories_of_another_place_has_them(tmp_path: Path, is_first: bool) -> None:
    """StreamFlow's recovery has placed the job anew, with other directories. Those of a job are there in any case."""
    first, again, temporary = (str(tmp_path / name) for name in ("first", "again", "tmp"))
    state = JobState(Job("/a/0", 1, {}, "/in", first if is_first else again, temporary))
    directories = JobDirectories(cast(Workflow, None), cast(StreamFlowContext, SimpleNamespace()), lambda _: None)
    seen: list[bool] = []

    class Inner(LocalConnector):  # type: ignore[misc]
        async def run(self, location: ExecutionLocation, command: Any, **options: Any) -> tuple[str, int]:
            seen.extend(Path(path).is_dir() for path in (first, temporary))
            return "", 0

    environment: MutableMapping[str, str] = {"HOME": first, "TMPDIR": temporary}
    connector = directories.connector(state, Inner("__LOCAL__", "/"))
    await connector.run(HERE, ["true"], environment=environment, workdir=first, job_name="/a/0")
    assert seen == [not is_first] * 2
