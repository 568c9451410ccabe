"""The parts of streaming that need no StreamFlow to run: attempts of jobs, rules of outputs, uses in expressions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.coordination.graph import OutputKind
from streamflow_io.hints import StreamingRule
from streamflow_io.streaming.inspect import _whole_file_use, _whole_self_use
from streamflow_io.streaming.jobs import ProducerFailedError, StreamingJobs
from streamflow_io.streaming.outputs import EarlyOutput

HERE = Path("/somewhere")


async def test_a_reader_gets_the_attempt_that_runs() -> None:
    jobs = StreamingJobs()
    job = jobs.open("/a/0")
    waiting = asyncio.create_task(job.attempt())
    await asyncio.sleep(0)
    assert not waiting.done()
    first = job.begin(HERE, HERE)
    assert await waiting is first
    assert jobs.is_running("/a/0")


async def test_a_reader_of_a_failed_attempt_gets_the_next() -> None:
    job = StreamingJobs().open("/a/0")
    first = job.begin(HERE, HERE)
    first.end(False)
    waiting = asyncio.create_task(job.attempt())
    await asyncio.sleep(0)
    assert not waiting.done()
    second = job.begin(HERE, HERE)
    assert await waiting is second
    assert second.number == 2


async def test_a_reader_of_a_job_that_is_given_up_is_told() -> None:
    jobs = StreamingJobs()
    job = jobs.open("/a/0")
    job.begin(HERE, HERE).end(False)
    waiting = asyncio.create_task(job.attempt())
    await asyncio.sleep(0)
    job.close()
    with pytest.raises(ProducerFailedError):
        await waiting
    with pytest.raises(ProducerFailedError):
        jobs.get("/b/0")
    assert not jobs.is_running("/a/0")


async def test_a_reader_of_a_job_that_has_succeeded_still_gets_its_file() -> None:
    job = StreamingJobs().open("/a/0")
    first = job.begin(HERE, HERE)
    first.end(True)
    job.close()
    assert await job.attempt() is first


@pytest.mark.parametrize("succeeded", [True, False])
async def test_what_is_not_committed_is_settled_by_the_end(succeeded: bool) -> None:
    attempt = StreamingJobs().open("/a/0").begin(HERE, HERE)
    attempt.commit("out", "committed")
    waiting = asyncio.create_task(attempt.settled("out", "open"))
    assert await attempt.settled("out", "committed")
    await asyncio.sleep(0)
    assert not waiting.done()
    attempt.end(succeeded)
    assert await waiting is succeeded
    assert await attempt.settled("out", "committed")


async def test_an_attempt_ends_once() -> None:
    attempt = StreamingJobs().open("/a/0").begin(HERE, HERE)
    attempt.end(True)
    attempt.end(False)
    assert await attempt.succeeded


def early(*rules: dict[str, object], kind: OutputKind = OutputKind.FILES) -> EarlyOutput:
    return EarlyOutput(
        port="out", kind=kind, rules=tuple(StreamingRule.model_validate({"port": "out", **rule}) for rule in rules)
    )


def test_the_rule_for_a_file_is_the_one_that_names_it_or_the_one_for_all() -> None:
    output = early({"committed": "on_close"}, {"files": ["*.log"], "committed": "on_termination"})
    assert output.commits_early("d/x.txt")
    assert not output.commits_early("d/x.log")
    assert str(output.rule.committed) == "on_close"
    only_some = early({"files": ["*.txt"], "committed": "on_close"})
    assert only_some.commits_early("x.txt")
    assert not only_some.commits_early("x.log")


def test_what_the_node_runtime_is_told() -> None:
    output = early({"committed": "on_close:2"}, {"files": ["*.log"], "committed": "on_file", "fileDeps": ["done"]})
    watched = output.watched("/out", ("*.txt", "*.log"))
    named, rest = watched.rules
    assert (watched.kind, watched.globs, watched.root) == ("files", ("*.txt", "*.log"), "/out")
    assert (named.globs, named.committed, named.file_deps) == (("*.log",), "on_file", ("done",))
    assert (rest.globs, rest.committed, rest.closes) == (("*.txt", "*.log"), "on_close", 2)


def test_an_early_output_is_kept_with_its_step() -> None:
    output = early({"committed": "on_n_files", "nFiles": 3}, kind=OutputKind.DIRECTORY)
    assert EarlyOutput.model_validate(output.model_dump(mode="json", by_alias=True, exclude_unset=True)) == output


@pytest.mark.parametrize(
    "expression",
    [
        "$(inputs.reads.size)",
        "$(inputs['reads'].checksum)",
        '$(inputs["reads"]["contents"])',
        "$(inputs.reads)",
        "$(inputs)",
        "${ return Object.keys(inputs).length; }",
        "${ var f = inputs . reads; return f.size; }",
        "$(inputs.other.path)$(inputs.reads.secondaryFiles[0].path)",
    ],
)
def test_uses_that_need_the_whole_file(expression: str) -> None:
    assert _whole_file_use(expression, "reads") is not None


@pytest.mark.parametrize(
    "expression",
    [
        "$(inputs.reads.path)",
        "$(inputs['reads'].basename).sam",
        "$(inputs.reads.nameroot)$(inputs.reads.nameext)",
        "$(inputs.other.size)",
        "$(inputs.reads_too.size)",
        "$(runtime.cores)",
        "$(my_inputs.reads)",
    ],
)
def test_uses_that_do_not(expression: str) -> None:
    assert _whole_file_use(expression, "reads") is None


@given(st.text(alphabet="inputs.read'[]\"$() {}x", max_size=30))
def test_no_expression_breaks_the_search(expression: str) -> None:
    _whole_file_use(expression, "reads")
    _whole_self_use(expression)
