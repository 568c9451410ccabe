"""Files of another attempt of a job that have the contents of the first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.context import StreamFlowContext
from streamflow.core.data import DataLocation, DataType
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.workflow import Job, Status, Token, Workflow
from streamflow.data.manager import DefaultDataManager
from streamflow.recovery.failure_manager import RollbackFailureManager
from streamflow.workflow.token import TerminationToken

from streamflow_io.adapters.jobs import JobState
from streamflow_io.jobs.job_directories import RemadeFiles, same_files


def file(path: str, checksum: str | None = "x", **fields: object) -> dict[str, object]:
    return {"class": "File", "path": path, "checksum": checksum, **fields}


def test_files_at_the_same_places_are_compared() -> None:
    one = [{"a": file("/1/a", secondaryFiles=[file("/1/b")]), "c": [file("/1/c"), 3]}, file("/1/d")]
    other = [{"a": file("/2/a", secondaryFiles=[file("/2/b")]), "c": [file("/2/c", "y"), 4]}, file("/2/d")]
    assert sorted(same_files([one], [other])) == [("/1/a", "/2/a"), ("/1/b", "/2/b"), ("/1/d", "/2/d")]


def test_what_is_not_known_to_be_the_same_is_left_out() -> None:
    assert [*same_files(file("/1", None), file("/2", None))] == []
    assert [*same_files([file("/1")], [file("/2"), file("/3")])] == []
    assert [*same_files(file("/1"), None)] == []
    assert [*same_files({"class": "Directory", "path": "/1"}, {"class": "Directory", "path": "/2"})] == []


def ran(*tokens: Token) -> Workflow:
    """A workflow in which a step has put tokens on its port."""
    step = SimpleNamespace(output_ports={"out": "port"})
    return cast(Workflow, SimpleNamespace(steps={"/a": step}, ports={"port": SimpleNamespace(token_list=[*tokens])}))


@pytest.mark.parametrize("ends", [(), (TerminationToken(),)])
@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
async def test_a_lost_file_is_where_the_next_attempt_has_made_it(ends: tuple[Token, ...], status: Status) -> None:
    """The step may have ended in the one workflow, and go on in the other."""
    context = cast(Any, SimpleNamespace(checkpoint_manager=SimpleNamespace(register=lambda _: None)))
    data = context.data_manager = DefaultDataManager(context)
    manager = context.failure_manager = RollbackFailureManager(context)
    there = ExecutionLocation("n2", "nodes")
    location = data.path_mapper.put("/2/a", DataLocation(there, "/2/a", "a", DataType.PRIMARY, available=True))
    job = JobState(Job("/a/0", 1, {}, "/in", "/2", "/tmp"))
    job.status = status
    remade = RemadeFiles(ran(Token(file("/1/a")), *ends), cast(StreamFlowContext, context))
    remade.ended(job)
    assert data.get_data_locations("/1/a") == []
    manager.get_request("/a/0").workflow = ran(Token(file("/2/a")), TerminationToken())
    remade.ended(job)
    assert data.get_data_locations("/1/a") == ([location] if status is Status.COMPLETED else [])
