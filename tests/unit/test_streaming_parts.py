"""The parts of streaming that need no StreamFlow to run: attempts of jobs, rules of outputs, uses in expressions."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.workflow import Token
from streamflow.cwl.processor import CWLCommandOutputProcessor

from streamflow_io.adapters.attempts import ProducerFailedError, StreamingJobs
from streamflow_io.adapters.output_globs import certain_path
from streamflow_io.adapters.outputs import EarlyOutput, directory_of
from streamflow_io.engine.obstacles import whole_file_use, whole_self_use
from streamflow_io.graph.io_graph import OutputKind
from streamflow_io.hints.models import StreamingRule

HERE = PurePosixPath("/somewhere")


async def collect(port: str, path: str) -> Token:
    raise NotImplementedError


async def test_a_reader_gets_the_attempt_that_runs() -> None:
    jobs = StreamingJobs()
    job = jobs.open("/a/0", collect)
    waiting = asyncio.create_task(job.attempt())
    await asyncio.sleep(0)
    assert not waiting.done()
    first = job.begin(HERE)
    assert await waiting is first
    assert jobs.is_running("/a/0")


async def test_jobs_of_one_name_run_one_after_the_other() -> None:
    """StreamFlow 0.2.0rc3 runs a job twice when it gathers the lists of a `nested_crossproduct` once too often."""
    jobs, order = StreamingJobs(), []

    async def run(number: int) -> None:
        await jobs.vacant("/a/0")
        job = jobs.open("/a/0", collect)
        order.append(f"begin {number}")
        await asyncio.sleep(0.01)
        order.append(f"end {number}")
        job.close()

    await asyncio.wait_for(asyncio.gather(*map(run, range(3))), 10)
    assert [word for word in order if word.startswith("begin")] == ["begin 0", "begin 1", "begin 2"]
    assert [word.split()[0] for word in order] == ["begin", "end"] * 3
    await jobs.vacant("/b/0")


async def test_a_reader_of_a_failed_attempt_gets_the_next() -> None:
    job = StreamingJobs().open("/a/0", collect)
    first = job.begin(HERE)
    first.end(False)
    waiting = asyncio.create_task(job.attempt())
    await asyncio.sleep(0)
    assert not waiting.done()
    second = job.begin(HERE)
    assert await waiting is second
    assert job.attempts == 2


async def test_a_reader_of_a_job_that_is_given_up_is_told() -> None:
    jobs = StreamingJobs()
    job = jobs.open("/a/0", collect)
    job.begin(HERE).end(False)
    waiting = asyncio.create_task(job.attempt())
    await asyncio.sleep(0)
    job.close()
    with pytest.raises(ProducerFailedError):
        await waiting
    with pytest.raises(ProducerFailedError):
        jobs.get("/b/0")
    assert not jobs.is_running("/a/0")


async def test_a_reader_of_a_job_that_has_succeeded_still_gets_its_file() -> None:
    job = StreamingJobs().open("/a/0", collect)
    first = job.begin(HERE)
    first.end(True)
    job.close()
    assert await job.attempt() is first


async def test_an_attempt_ends_once() -> None:
    attempt = StreamingJobs().open("/a/0", collect).begin(HERE)
    attempt.end(True)
    attempt.end(False)
    assert await attempt.succeeded


def early(*rules: dict[str, object], kind: OutputKind = OutputKind.FILES) -> EarlyOutput:
    return EarlyOutput(
        port="out", kind=kind, rules=tuple(StreamingRule.model_validate({"port": "out", **rule}) for rule in rules)
    )


def test_the_rule_for_a_file_is_the_one_that_names_it_or_the_one_for_all() -> None:
    output = early({"committed": "on_close"}, {"files": ["*.log"], "committed": "on_termination"})
    assert output.rule_for("d/x.txt") == output.rules[0]
    assert output.rule_for("d/x.log") == output.rules[1]
    assert str(output.rule.committed) == "on_close"
    only_some = early({"files": ["*.txt"], "committed": "on_close"})
    assert only_some.rule_for("x.txt") == only_some.rules[0]
    assert only_some.rule_for("x.log") is None


def test_what_the_node_runtime_is_told() -> None:
    output = early({"committed": "on_close:2"}, {"files": ["*.log"], "committed": "on_file", "fileDeps": ["done"]})
    watched = output.watched("/out", ("*.txt", "*.log"))
    named, rest = watched.rules
    assert (watched.kind, watched.globs, watched.root) == ("files", ("*.txt", "*.log"), "/out")
    assert (named.globs, named.committed, named.file_deps) == (("*.log",), "on_file", ("done",))
    assert (rest.globs, rest.committed, rest.closes) == (("*.txt", "*.log"), "on_close", 2)


@pytest.mark.parametrize(
    ("globs", "entry", "directory"),
    [
        (("out",), "out/a", "out"),
        (("out",), "out/s/a", "out"),
        (("o*",), "out/s/a", "out"),
        (("x/*.d",), "x/y.d/z", "x/y.d"),
        (("x", "y"), "y/a", "y"),
        ((".",), "a", "."),
        (("out",), "other/a", None),
        (("out/*",), "out/a", None),
    ],
)
def test_the_directory_of_an_entry(globs: tuple[str, ...], entry: str, directory: str | None) -> None:
    assert directory_of(globs, entry) == directory


@pytest.mark.parametrize(
    ("globs", "optional", "path"),
    [
        (("out.txt",), False, "out.txt"),
        (("d/out.txt",), False, "d/out.txt"),
        ((".",), False, "."),
        (("*.txt",), False, None),
        (("a", "b"), False, None),
        (("../out",), False, None),
        (("out.txt",), True, None),
    ],
)
def test_what_is_certain_before_it_exists(globs: tuple[str, ...], optional: bool, path: str | None) -> None:
    processor = CWLCommandOutputProcessor("out", None, token_type="File", optional=optional, single=True)
    assert certain_path(processor, globs) == path


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
        "$(inputs.reads[0])",
        "$(inputs.reads[0].size)",
        "$(inputs.reads[i].basename)",
        "$(inputs.reads == nullable)",
        "$(inputs.reads.contents == null)",
        "$(inputs == null)",
    ],
)
def test_uses_that_need_the_whole_file(expression: str) -> None:
    assert whole_file_use(expression, "reads") is not None


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
        "$(inputs.reads.format)",
        "$(inputs.reads.length)",
        "$(inputs.reads[0].basename)$(inputs['reads'][1]['nameroot'])",
        "${ return inputs.reads != null && inputs.reads === null; }",
    ],
)
def test_uses_that_do_not(expression: str) -> None:
    assert whole_file_use(expression, "reads") is None


@given(st.text(alphabet="inputs.read'[]\"$() {}x", max_size=30))
def test_no_expression_breaks_the_search(expression: str) -> None:
    whole_file_use(expression, "reads")
    whole_self_use(expression)
