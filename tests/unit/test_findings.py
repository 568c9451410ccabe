"""The finding of a rehearsal becomes a proof, a record, and a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from streamflow_io.proofs.findings import Findings, RememberedInconclusive, proof_of
from streamflow_io.proofs.rehearsal import Rehearsal
from streamflow_io.proofs.rehearsal_rules import Finding, unknown
from streamflow_io.records.jobs import RehearsedRecord
from streamflow_io.records.learned.database import known_entries
from streamflow_io.records.learned.extents import Extent
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, ProofKey, RememberedProofs, Way
from streamflow_io.records.records import Record

NET = Finding("net", read=(7,))


def rehearsal(size: int = 7, kind: Literal["reads", "declared"] = "reads", options: str = "") -> Rehearsal:
    original = SimpleNamespace(job=SimpleNamespace(name="/a/0"), step=SimpleNamespace(name="/a"))
    key = ProofKey("tool", kind, "text", options)
    facts: dict[str, Any] = {
        "name": "/a/text",
        "key": key,
        "size": size,
        "spent": 2.0,
        "port": "text",
        "keys": {},
        "beside": {},
    }
    return cast(Rehearsal, SimpleNamespace(original=original, job=SimpleNamespace(sizes=[size]), **facts))


def of_two(port: str, **beside: Way) -> Rehearsal:
    """The rehearsal of one of two inputs, together with others."""
    found, keys = rehearsal(), {name: ProofKey("tool", "reads", name, name) for name in ("text", "more")}
    vars(found).update(port=port, key=keys[port], keys=keys, beside=beside)
    vars(found.original).update(files=lambda _: [SimpleNamespace(value={"size": 7})])
    return found


class Kept:
    """Findings, and the records of them."""

    def __init__(self, directory: Path, declarations: Literal["recover", "strict"] = "recover") -> None:
        self.store = directory / "learned"
        self.proofs = RememberedProofs(self.store, ())
        self.records: list[Record] = []
        inconclusive = RememberedInconclusive(self.store, known_entries(self.store, InconclusiveRehearsal))
        self.findings = Findings(self.proofs, inconclusive, declarations, self.records.append)

    async def found(self, of: Rehearsal, finding: Finding) -> None:
        proof = self.findings.proof_of(of, finding)
        if proof is not None:
            await self.findings.remember(proof)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    await kept.proofs.close()


def test_a_job_that_has_failed_is_rehearsed_anew(kept: Kept) -> None:
    kept.findings.expect(rehearsal())
    kept.findings.expect_no_more(rehearsal())
    assert kept.findings.is_new(rehearsal())


def test_of_a_declared_input_one_job_is_compared(kept: Kept) -> None:
    kept.findings.expect(rehearsal(kind="declared"))
    assert not kept.findings.is_new(rehearsal(9, "declared", "other"))


@pytest.mark.parametrize(("declarations", "is_new"), [("recover", False), ("strict", True)])
async def test_only_a_strict_run_compares_what_is_refuted(
    tmp_path: Path, declarations: Literal["recover", "strict"], is_new: bool
) -> None:
    kept = Kept(tmp_path, declarations)
    await kept.found(rehearsal(kind="declared"), Finding(None, "the output `out` differs"))
    assert kept.findings.is_new(rehearsal(kind="declared")) is is_new
    await kept.proofs.close()


async def test_a_proof_holds_for_what_was_read(kept: Kept) -> None:
    await kept.found(rehearsal(), NET)
    proof = kept.proofs.of(rehearsal().key)
    assert proof is not None
    assert (proof.way, proof.extents) == ("net", (Extent(7, 7),))
    assert [(each.way, each.known) for each in kept.records if isinstance(each, RehearsedRecord)] == [("net", True)]


async def test_proven_inputs_are_tried_again_until_they_were_tried_together(kept: Kept) -> None:
    """One of the files may have been empty, or larger than its proof, when the other was tried."""
    await kept.found(of_two("text"), NET)
    await kept.found(of_two("more"), NET)
    assert [kept.findings.is_new(of_two(port)) for port in ("text", "more")] == [True, True]
    await kept.found(of_two("more", text="net"), NET)
    assert [kept.findings.is_new(of_two(port)) for port in ("text", "more")] == [False, False]
    await kept.found(of_two("more"), NET)
    assert not kept.findings.is_new(of_two("more")), "what was tried once stays so"


async def test_what_is_not_known_is_recorded_and_proves_nothing(kept: Kept) -> None:
    await kept.found(rehearsal(), unknown("there is too little space"))
    assert kept.proofs.of(rehearsal().key) is None
    assert [each.known for each in kept.records if isinstance(each, RehearsedRecord)] == [False]


async def test_a_refutation_says_with_which_file_the_input_was_proven(kept: Kept) -> None:
    await kept.found(rehearsal(), NET)
    await kept.found(rehearsal(9000), Finding(None, "the outputs differ"))
    (_, record) = kept.records
    assert isinstance(record, RehearsedRecord)
    assert record.reason == "the outputs differ (with 9.0 kB; it was proven up to 7 B)"


def test_failures_are_counted_and_a_refusal_ends_the_count() -> None:
    failed = Finding(None, "exit code 1", has_failed=True)
    assert proof_of(rehearsal(), failed, 1, 5.0).failures == 2
    assert proof_of(rehearsal(), Finding(None, "the tool seeks"), 1, 5.0).failures == 0


async def test_the_end_of_the_run_warns_of_what_is_refuted(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.findings.tell(rehearsal(kind="declared"), Finding(None, "the output `out` differs"))
    kept.findings.tell(rehearsal(), Finding(None, "the tool seeks"))
    caplog.clear()
    await kept.findings.close()
    (warning,) = caplog.messages
    assert "/a/text" in warning
    assert "the output `out` differs. The results of this run are" in warning


async def test_an_input_is_fruitless_after_a_rehearsal_that_has_shown_nothing(kept: Kept) -> None:
    assert not kept.findings.is_fruitless(rehearsal())
    kept.findings.tell(rehearsal(), unknown("its core was wanted"))
    assert kept.findings.is_fruitless(rehearsal())
    kept.findings.tell(rehearsal(), NET)
    not_begun = rehearsal()
    not_begun.spent = 0.0
    kept.findings.give_up(not_begun, "its files had to go")
    assert not kept.findings.is_fruitless(rehearsal())


async def test_later_runs_know_what_has_shown_nothing_until_it_is_proven(kept: Kept, tmp_path: Path) -> None:
    kept.findings.tell(rehearsal(), unknown("the file is too small to tell"))
    await kept.findings.close()
    [found] = known_entries(kept.store, InconclusiveRehearsal)
    assert (found.step, found.reason, found.bytes) == ("/a", "the file is too small to tell", 7)
    later = Kept(tmp_path)
    assert later.findings.is_fruitless(rehearsal(9, options="other"))
    assert not later.findings.is_fruitless(rehearsal(kind="declared"))
    await later.found(rehearsal(), NET)
    assert not later.findings.is_fruitless(rehearsal())
    await later.findings.close()
    await later.proofs.close()
    assert known_entries(kept.store, InconclusiveRehearsal) == ()
