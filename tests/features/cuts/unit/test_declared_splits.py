"""Declared splits before a run: the validity of their verdicts, and whether there are some."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
from streamflow.core.workflow import Job
from streamflow.workflow.token import FileToken

from streamflow_io.features.cuts.declared_split import DeclaredSplit, declared_split
from streamflow_io.features.cuts.planning import trials
from streamflow_io.features.cuts.split_key import Declaration, verdict_key
from streamflow_io.features.cuts.verdicts import RememberedVerdicts, Verdict
from streamflow_io.graph.partitions import NOT_VERIFIED
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.jobs.programs import Programs
from streamflow_io.runtime.node_commands import NodeRuntimeError

KEY = ("/split", "chunks")
EVERY = SessionRule(port="chunks", of="reads", records="lines", every=2, names="%d")
PARTS = SessionRule(port="chunks", of="reads", records="lines", parts="n", names="%d")
READS = {"class": "File", "path": "/reads", "basename": "reads", "checksum": "sha1$1", "size": 1}


def verdict(rule: SessionRule, difference: str | None = None, compared: float = 0, tool: str = "t") -> Verdict:
    key = verdict_key(Declaration(rule=rule, tool=tool), {"reads": READS, "n": 3})
    return Verdict(key, "/split", compared, 3, difference)


def test_what_is_known_of_a_split() -> None:
    def trial(rule: SessionRule, *verdicts: Verdict) -> str | None:
        return trials({KEY: Declaration(rule=rule, tool="t")}, verdicts).get(KEY)

    assert trial(EVERY) == trial(EVERY, verdict(PARTS), verdict(EVERY, tool="u")) == NOT_VERIFIED
    assert trial(EVERY, verdict(EVERY)) is None
    assert trial(PARTS, verdict(PARTS)) is None, "with some number of parts"
    refuted = [verdict(EVERY, "an old one", 1_700_000_000), verdict(EVERY, "a new one", 1_800_000_000)]
    assert str(trial(EVERY, *refuted)).startswith("refuted on 2027-01-1")
    assert str(trial(EVERY, *refuted)).endswith(": a new one")
    assert trial(EVERY, *refuted, verdict(EVERY)) is None, "with other inputs"


def test_what_is_known_of_a_split_whose_inputs_are_known() -> None:
    """One verdict that holds for other inputs is none."""
    one, other = (verdict_key(Declaration(rule=PARTS, tool="t"), {"reads": READS, "n": number}) for number in (3, 4))

    def trial(*verdicts: Verdict) -> str | None:
        known = {KEY: frozenset([one, other])}
        return trials({KEY: Declaration(rule=PARTS, tool="t")}, verdicts, known).get(KEY)

    good, also = (Verdict(key, "/split", 0, 3) for key in (one, other))
    assert trial() == trial(good) == trial(verdict(EVERY)) == NOT_VERIFIED
    assert trial(good, also) is None
    assert str(trial(good, replace(also, difference="another name"))).endswith(": another name")
    elsewhere = [replace(each, key=replace(each.key, programs="other ones")) for each in (good, also)]
    assert trial(*elsewhere) is None, "the jobs may run where these programs are"


class ReadFile(FileToken):
    async def get_paths(self, context: object) -> list[str]:
        return [self.value["path"]]

    async def get_weight(self, context: object) -> int:
        return 0


class Host:
    """A location whose program `split` has a size of its own. None: the location does not answer."""

    is_here = False
    binary = "sfio-node"

    def __init__(self, size: int | None) -> None:
        self._size = size

    async def run(self, words: list[str], _seconds: float) -> tuple[str, int]:
        assert words == ["sfio-node", "programs", "--", "split"]
        if self._size is None:
            raise NodeRuntimeError("no answer")
        return json.dumps({"size": self._size, "mtime": 1, "loads": ""}), 0

    async def find(self, _path: str) -> None:
        raise NodeRuntimeError("not asked for here")


def test_a_verdict_holds_for_the_same_programs_at_the_location(tmp_path: Path) -> None:
    """The programs of a host, or of an image, may be other ones, and may be updated."""
    declaration = Declaration(rule=EVERY, tool="t", programs=(("split", (10, 1, "")),))
    token = ReadFile({**READS, "location": "/reads"})
    warned = list[str]()
    step: Any = SimpleNamespace(name="/split", warn_once=warned.append)
    output: Any = SimpleNamespace(port="chunks")

    async def split_at(host: Any, verdicts: RememberedVerdicts) -> DeclaredSplit | None:
        job, programs = Job("/split/0", 0, {"reads": token}, "/in", "/out", "/tmp"), Programs()
        try:
            return await declared_split(step, job, output, declaration, {"reads": token}, verdicts, programs, host)
        finally:
            await programs.close()

    async def look() -> None:
        nothing = RememberedVerdicts(tmp_path / "learned", ())
        same, other = await split_at(Host(10), nothing), await split_at(Host(11), nothing)
        assert same is not None
        assert other is not None
        assert not same.is_virtual
        assert same.key == verdict_key(declaration, {"reads": token.value}), "as on the driver's node"
        assert same.key != other.key
        assert same.key.digest != other.key.digest
        verdicts = RememberedVerdicts(tmp_path / "learned", [Verdict(same.key, "/split", 0, 3)])
        again, updated = await split_at(Host(10), verdicts), await split_at(Host(11), verdicts)
        assert again is not None
        assert again.is_virtual
        assert updated is not None
        assert not updated.is_virtual
        assert not warned
        assert await split_at(Host(None), verdicts) is None
        assert "the programs of its tool are not known where it runs" in warned[0]

    asyncio.run(look())
