"""The streams that a job reads as such: those that are proven, and were tried together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from streamflow.core.workflow import Job
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.graph.candidates import Candidate
from streamflow_io.jobs.learned_streams import LearnedReads, LearnedStreams
from streamflow_io.jobs.programs import Programs
from streamflow_io.jobs.proof_key import proof_key
from streamflow_io.jobs.reach import Reach
from streamflow_io.records.learned.extents import ENOUGH, UNBOUNDED
from streamflow_io.records.learned.proofs import Proof, RememberedProofs, TriedBeside

INPUTS = {name: StreamToken(file_value(f"/in/{name}"), StreamSource(f"/{name}/0", "out", name)) for name in "abcd"}
DECLARES = Candidate("tool", ("a", "b", "c"), declared=("d",))


class Place:
    """Where the job runs.

    :ivar cat: the program that is there
    """

    binary = "sfio-node"
    location = "hosts/host"

    def __init__(self, cat: str = "") -> None:
        self.cat = cat
        self.is_here = not cat
        self.told: list[str] = []

    def fell_back(self, _: JobState, source: tuple[str, str], reason: str) -> None:
        self.told.append(f"{source}: {reason}")

    async def runtime(self, _: JobState) -> Any:
        return self

    async def run(self, words: list[str], _: float) -> tuple[str, int]:
        return self.cat, 0


JOB = JobState(Job("/read/0", 0, INPUTS, "/in", "/out", "/tmp"))


def tried(port: str) -> TriedBeside:
    """A trial with an input; `d` is declared."""
    return TriedBeside(port, "pipe" if port == "d" else "net", (ENOUGH,), (ENOUGH,))


async def begun(candidate: Candidate, proven: Mapping[str, str]) -> LearnedReads:
    """A job on the driver's node.

    :param proven: by a proven input: the inputs with which it was tried
    """
    values = {name: get_token_value(token) for name, token in INPUTS.items()}
    keys = {name: proof_key(candidate, name, values, sees_files=True) for name in proven}
    proofs = [
        Proof(key, "/read", 0.0, "net", extents=UNBOUNDED, beside=tuple(map(tried, proven[name])))
        for name, key in keys.items()
        if key is not None
    ]
    learned = LearnedStreams({"/read": candidate}, {}, (), RememberedProofs(Path("/no/such"), proofs), Programs())
    reads = LearnedReads(learned, cast(Any, SimpleNamespace(name="/read", streamable=())), JOB)
    await reads.begin(cast(Reach, Place()))
    return reads


@pytest.mark.parametrize(
    ("proven", "expected"),
    [
        ({"a": ""}, "ad"),
        ({"a": "", "b": ""}, "ad"),
        ({"a": "", "b": "a"}, "abd"),
        ({"a": "b", "b": ""}, "abd"),
        ({"a": "", "b": "a", "c": "ab"}, "abcd"),
        ({"a": "", "b": "a", "c": "a"}, "abd"),
        ({"a": "", "b": "", "c": "b"}, "ad"),
    ],
)
async def test_two_inputs_are_streams_at_once_only_if_they_were_tried_so(proven: dict[str, str], expected: str) -> None:
    reads = await begun(DECLARES, {name: f"{beside}d" for name, beside in proven.items()})
    assert reads.streams == {*expected}


@pytest.mark.parametrize(("beside", "expected"), [("", "d"), ("d", "ad")])
async def test_an_input_that_is_declared_later_was_not_tried(beside: str, expected: str) -> None:
    assert (await begun(DECLARES, {"a": beside})).streams == {*expected}


@pytest.mark.parametrize(
    ("there", "expected", "why"),
    [
        ('{"size": 9, "mtime": 8, "loads": "libc"}', "ad", None),
        ('{"size": 5, "mtime": 8, "loads": "libc"}', "d", "it is proven with other programs than those on hosts/host"),
        ("-", "d", "the programs of the tool are not known on hosts/host"),
    ],
)
async def test_a_job_that_moves_needs_a_proof_with_the_programs_there(
    there: str, expected: str, why: str | None
) -> None:
    candidate = replace(DECLARES, programs=(("cat", (9, 8, "libc")),))
    reads = await begun(candidate, {"a": "d"})
    assert reads.streams == {"a", "d"}
    reads.moved(JOB)
    await reads.begin(cast(Reach, place := Place(there)))
    assert reads.streams == {*expected}
    assert [told for told in place.told if "/a/0" in told] == (
        [] if why is None else [f"('/a/0', 'out'): {why} [SFIO-L002]"]
    )
