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
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, ProofKey, RememberedProofs, Shown, Way
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
        "shown": None,
        "had_its_time": False,
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


async def test_inputs_that_were_tried_together_are_tried_again_with_larger_files(kept: Kept) -> None:
    """One of the inputs is proven with a larger file alone, because the file of the other input was larger, too."""
    await kept.found(of_two("text"), NET)
    await kept.found(of_two("more", text="net"), NET)
    larger = of_two("text")
    larger.job.sizes[:] = [9]
    await kept.found(larger, Finding("net", read=(9,)))
    assert kept.findings.is_new(larger), "they were tried together with smaller files only"
    vars(larger).update(beside={"more": "net"})
    await kept.found(larger, Finding("net", read=(9,)))
    assert not kept.findings.is_new(larger)


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


ALONE = Shown("net", (7,), (7,))
SHORT = Shown("net", (7,), (7,), is_short_tried=True)


async def runs(directory: Path, *ended: Rehearsal, found: Rehearsal | None = None) -> Kept:
    """A run in which rehearsals have had to end, and one has found something; and what the next run knows."""
    kept = Kept(directory)
    for each in ended:
        kept.findings.keep(each)
    if found is not None:
        await kept.found(found, NET)
    await kept.findings.close()
    await kept.proofs.close()
    return Kept(directory)


def unfinished(shown: Shown | None = None, size: int = 7, **fields: Any) -> Rehearsal:
    ended = rehearsal(size, **fields)
    vars(ended).update(shown=shown)
    return ended


def goes_on(kept: Kept, size: int = 7, **fields: Any) -> Shown | None:
    """The knowledge with which a new rehearsal begins."""
    new, earlier = rehearsal(size, **fields), list[Shown]()
    vars(new).update(go_on=earlier.append)
    kept.findings.go_on(new)
    return earlier[0] if earlier else None


async def test_a_later_run_goes_on_where_a_rehearsal_had_to_end(tmp_path: Path) -> None:
    next_run = await runs(tmp_path, unfinished(ALONE))
    assert [goes_on(next_run, size) for size in (7, 5, 8)] == [ALONE, ALONE, None]
    assert goes_on(next_run, options="other") is goes_on(next_run, kind="declared") is None
    assert not next_run.findings.is_fruitless(rehearsal())
    next_run = await runs(tmp_path, unfinished(SHORT))
    assert goes_on(next_run) == SHORT
    assert goes_on(await runs(tmp_path, unfinished())) == SHORT, "a run that ends earlier takes nothing away"


async def test_nothing_is_left_of_it_when_the_input_is_refused(tmp_path: Path) -> None:
    next_run = await runs(tmp_path, unfinished(ALONE))
    await next_run.found(rehearsal(), Finding(None, "exit code 1", has_failed=True))
    assert next_run.findings.is_new(rehearsal()), "it may have been an accident"
    assert goes_on(next_run) is None
    await next_run.findings.close()
    assert known_entries(next_run.store, InconclusiveRehearsal) == ()
    await next_run.proofs.close()


async def test_what_was_tried_for_a_proof_is_not_tried_again_for_another_input(kept: Kept) -> None:
    await kept.found(of_two("text"), NET)
    await kept.found(of_two("more"), NET)
    for size, expected in ((7, SHORT), (8, None)):
        new, earlier = of_two("text", more="net"), list[Shown]()
        vars(new).update(go_on=earlier.append, job=SimpleNamespace(sizes=[size]))
        kept.findings.go_on(new)
        assert earlier == ([] if expected is None else [expected])
    kept.proofs.outgrown(of_two("text").key)
    assert not goes_on_of_two(kept), "more bytes are to be read"


def goes_on_of_two(kept: Kept) -> list[Shown]:
    new, earlier = of_two("text", more="net"), list[Shown]()
    vars(new).update(go_on=earlier.append)
    kept.findings.go_on(new)
    return earlier


async def test_runs_in_which_nothing_more_is_shown_are_counted(tmp_path: Path) -> None:
    def other() -> Rehearsal:
        one = rehearsal(options="other")
        vars(one).update(name="/b/text")
        return one

    hopeless = []
    for shown, found in ((None, None), (None, other()), (None, None), (ALONE, None), (None, None), (None, None)):
        next_run = await runs(tmp_path, unfinished(shown), found=found)
        hopeless.append(next_run.findings.is_hopeless(rehearsal()))
    assert not any(hopeless), "in some of these runs something was shown"
    next_run = await runs(tmp_path, unfinished())
    assert [next_run.findings.is_hopeless(rehearsal(size)) for size in (7, 8)] == [True, False]
    assert not next_run.findings.is_hopeless(rehearsal(kind="declared"))
    assert goes_on(next_run) == ALONE


async def test_a_rehearsal_on_a_core_that_others_used_was_not_in_vain(tmp_path: Path) -> None:
    slow = unfinished()
    vars(slow).update(had_its_time=True)
    for _ in range(4):
        next_run = await runs(tmp_path, slow)
    assert not next_run.findings.is_hopeless(rehearsal())


async def test_a_rehearsal_that_has_not_begun_was_not_in_vain(tmp_path: Path) -> None:
    not_begun = unfinished()
    not_begun.spent = 0.0
    await runs(tmp_path, not_begun)
    assert known_entries(tmp_path / "learned", InconclusiveRehearsal) == ()
