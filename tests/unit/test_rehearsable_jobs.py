"""Inputs of jobs that can be rehearsed, and inputs that cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Token
from streamflow.cwl.command import CWLCommand
from streamflow.workflow.token import FileToken

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.graph.candidates import Candidate
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.jobs.programs import Programs
from streamflow_io.proofs.original_job import JobResult
from streamflow_io.proofs.rehearsable_jobs import Comparison, RehearsableJob, RehearsableJobs
from streamflow_io.records.learned.proofs import Shown

HOST = AvailableLocation(name="host", deployment="d", hostname="host", hardware=Hardware(2, 1000))
STREAM = StreamToken(file_value("/in/text"), StreamSource("/w/0", "out", "text"))


class File(FileToken):  # type: ignore[misc]
    async def get_paths(self, context: Any) -> list[str]:
        return []


def file(size: int = 9, **more: Any) -> File:
    return File({"class": "File", "path": "/f", "basename": "f", "size": size, **more})


@dataclass(eq=False)
class Runtime:
    """A node runtime."""

    is_here: bool = True
    wrapper: str = "exec"


class Step:
    """A step, whose jobs and their producers are at the places of `at`, by the names of the jobs."""

    def __init__(self, at: Mapping[str, str], **command: Any) -> None:
        def allocation(name: str) -> Any:
            return SimpleNamespace(locations=[SimpleNamespace(deployment="d", name=at.get(name, "host"))])

        self.name = "/a"
        self.command = CWLCommand(step=cast(Any, None))
        vars(self.command).update(command)
        self.output_connectors: dict[str, str] = {}
        self.workflow = SimpleNamespace(
            context=SimpleNamespace(
                deployment_manager=SimpleNamespace(get_connector=lambda _: object()),
                scheduler=SimpleNamespace(get_hardware=lambda _: Hardware(1, 600), get_allocation=allocation),
            )
        )


def find(
    inputs: Mapping[str, Token],
    candidate: Candidate,
    *,
    step: Step | None = None,
    hints: StepAnnotations | None = None,
    places: int = 1,
    runtime: Runtime | None = None,
    jobs: RehearsableJobs | None = None,
) -> RehearsableJob | None:
    job = JobState(Job("/a/0", 0, {}, "/in", "/out", "/tmp"), hints)
    target = SimpleNamespace(deployment=SimpleNamespace(name="d"))
    job.allocation, job.places = cast(Any, SimpleNamespace(target=target)), [HOST] * places
    jobs = jobs or of({"/a": candidate})
    streams = [name for name, token in inputs.items() if isinstance(token, StreamToken)]
    return jobs.find(cast(Any, step or Step({})), job, cast(Any, runtime or Runtime()), inputs, streams)


def of(candidates: Mapping[str, Candidate]) -> RehearsableJobs:
    return RehearsableJobs(candidates, True, Programs(), StreamingJobs())


READS = Candidate("tool", ("text", "more"))
DECLARES = Candidate("tool", (), declared=("text",))


async def test_each_input_that_is_a_file_is_rehearsed() -> None:
    found = find({"text": file(), "more": file(), "option": Token(5)}, READS)
    assert found is not None
    assert found.needs_nothing
    assert [each.name for each in of({}).rehearsals_with(found)] == ["/a/text", "/a/more"]


async def test_the_other_files_of_a_job_are_read_again_beside_a_short_one() -> None:
    """A short file of one input may take as long as the whole one, where another input has more."""
    found = find({"text": file(2**20), "more": file(3 * 2**20), "option": Token(5)}, READS)
    assert found is not None
    text, more = of({}).rehearsals_with(found)
    assert [each.share for each in (text, more)] == [1, 1]
    assert [each.runs for each in (text, more)] == [2.5 + 2**-9, 1.5 + 2**-9]
    for each in (text, more):
        each.go_on(Shown("net", (5,), (5,)))
    assert [each.share for each in (text, more)] == [0.75 + 2**-10, 0.25 + 2**-10]
    text.go_on(Shown("net", (5,), (5,), is_short_tried=True))
    assert text.share == 1, "all inputs are tried together"
    found.original.result.set_result(JobResult({}, 2.0, 1.0))
    assert [each.seconds for each in (text, more)] == [2, 0.5 + 2**-9]
    text.spent = more.spent = 4.0
    assert [each.had_its_time for each in (text, more)] == [False, True]


@pytest.mark.parametrize(
    "token", [Token(5), file(0), file(secondaryFiles=[{"class": "File", "path": "/i"}]), file(**{"class": "Directory"})]
)
async def test_inputs_that_are_no_complete_files(token: Token) -> None:
    assert find({"text": token}, READS) is None


async def test_jobs_that_cannot_run_again() -> None:
    inputs = {"text": file()}
    assert find(inputs, Candidate("tool", ("text",), once="it uses the network")) is None
    assert find(inputs, READS, places=2) is None
    assert find(inputs, READS, step=Step({}, inplace_update=True)) is None
    assert find(inputs, READS, jobs=of({})) is None


async def test_a_runtime_that_is_excluded_and_a_queue() -> None:
    jobs, runtime = of({"/a": READS}), Runtime()
    assert find({"text": file()}, READS, jobs=jobs, runtime=runtime) is not None
    jobs.exclude(cast(Any, runtime))
    assert find({"text": file()}, READS, jobs=jobs, runtime=runtime) is None
    assert find({"text": file()}, READS, jobs=jobs, runtime=Runtime(wrapper="run")) is None


async def test_a_declared_stream_is_compared_where_its_file_is() -> None:
    found = find({"text": STREAM}, DECLARES)
    assert found is not None
    assert (found.has_streams, found.needs_nothing, found.ports) == (True, False, ["text"])
    assert find({"text": STREAM}, DECLARES, step=Step({"/w/0": "another host"})) is None
    assert find({"text": STREAM, "more": STREAM}, READS) is None, "no stream is declared"


async def test_a_file_beside_a_stream_is_rehearsed_when_the_stream_is_a_file() -> None:
    for candidate in (READS, Candidate("tool", ("more",), declared=("text",))):
        found = find({"text": STREAM, "more": file()}, candidate)
        assert found is not None
        assert (found.has_streams, found.needs_nothing, found.ports[-1]) == (True, False, "more")
        files = replace(found, original=replace(found.original, inputs={"text": file(), "more": file()}))
        *_, last = of({}).rehearsals_with(files)
        assert (last.name, {*last.keys}) == ("/a/more", {"text", "more"})


async def test_a_stream_whose_producer_is_unknown_gives_no_rehearsal() -> None:
    found = find({"text": STREAM}, DECLARES)
    assert found is not None
    assert not await of({"/a": DECLARES}).rehearsals(found)


async def test_a_declared_input_is_compared() -> None:
    found = find({"text": file()}, Candidate("tool", ("text",), declared=("text",)))
    assert found is not None
    assert [type(each) for each in of({}).rehearsals_with(found)] == [Comparison]
