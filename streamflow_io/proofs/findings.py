"""Keeps the findings of rehearsals as proofs, records them, and tells the user."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from streamflow.log_handler import logger

from streamflow_io.jobs.learned_streams import not_as_declared
from streamflow_io.messages import Code, coded
from streamflow_io.records.jobs import RehearsedRecord
from streamflow_io.records.learned.extents import Extent, Extents, bound_of, hold_for
from streamflow_io.records.learned.proofs import (
    InconclusiveRehearsal,
    Proof,
    ProofKey,
    RememberedProofs,
    Shown,
    TriedBeside,
    Way,
    tried_together,
    tried_with_declared,
)
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.records.records import Record
from streamflow_io.wording import size_text

from .original_job import file_sizes
from .rehearsal import Rehearsal
from .rehearsal_rules import Finding, unknown

_RUN_ENDED = "the run ended first, which `rehearse: wait` prevents"


class RememberedInconclusive(Remembered[InconclusiveRehearsal]):
    """Rehearsals of earlier runs, and of this one, that have shown nothing.

    :param known: the entries of the file. None: the file cannot be read, and is not used
    """

    def __init__(self, path: Path, known: Iterable[InconclusiveRehearsal] | None) -> None:
        super().__init__(path, InconclusiveRehearsal, known, "Which rehearsals have shown nothing is")


class Findings:
    """The findings of the rehearsals of a run, and what rehearsals are still to find.

    :param proofs: of this run and earlier ones
    :param inconclusive: the rehearsals of this run and earlier ones that have shown nothing
    :param declarations: what a declaration that is refuted leads to
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        proofs: RememberedProofs,
        inconclusive: RememberedInconclusive,
        declarations: Literal["recover", "strict"],
        record: Callable[[Record], None],
    ) -> None:
        self._proofs = proofs
        self._declarations = declarations
        self._record = record
        self._inconclusive = inconclusive
        # By name: the last rehearsal of an input in this run, and why nothing is known. None: something is known.
        self._last: dict[str, tuple[Rehearsal, str] | None] = {}
        self._has_found = False
        # The sizes of the largest files for which a rehearsal was begun.
        self._expected: dict[ProofKey, Extents] = {}
        # The declared inputs that are compared: of each only one job, whatever its options.
        self._compared: set[tuple[str, str]] = set()
        # The rehearsals that have ended with the run.
        self._ended: list[Rehearsal] = []
        # The inputs with a rehearsal that was given up, by name, and why.
        self._given_up: set[tuple[str, str]] = set()
        # By name of a declared input that is not read as declared: how it is read.
        self._refuted: dict[str, str] = {}

    def is_new(self, rehearsal: Rehearsal) -> bool:
        """Whether a rehearsal may prove something unknown that no other rehearsal is to prove."""
        key, sizes = rehearsal.key, rehearsal.job.sizes
        if key.kind == "declared":
            if key in self._expected or (key.tool, key.port) in self._compared:
                return False
            known = self._proofs.of(key)
            if known is not None and known.is_refused and self._declarations == "strict":
                return True
        elif key in self._expected and hold_for(self._expected[key], sizes):
            return False
        return self._is_wanted(rehearsal)

    def _is_to_be_tried_together(self, rehearsal: Rehearsal) -> bool:
        """Whether a proven input was not tried together with another one that jobs may read as a stream."""
        proof = self._proofs.of(rehearsal.key)
        if proof is None or not proof.is_proven or rehearsal.key.kind == "declared":
            return False

        def is_tried(other: str) -> bool:
            key, sizes = rehearsal.keys[other], rehearsal.job.sizes
            if key.kind == "declared":
                return any(hold_for(extents, sizes) for extents in tried_with_declared(proof, other))
            its, its_sizes = self._proofs.of(key), _sizes(rehearsal, other)
            trials = () if its is None else tried_together(proof, its)
            return any(hold_for(ours, sizes) and hold_for(theirs, its_sizes) for ours, theirs in trials)

        return not all(map(is_tried, self.ways_beside(rehearsal, ())))

    def ways_beside(self, rehearsal: Rehearsal, unconfirmed: Iterable[Rehearsal]) -> dict[str, Way]:
        """The other inputs of the job that jobs may read as streams, with their ways.

        :param unconfirmed: rehearsals with a finding that is not a proof yet
        """
        if rehearsal.key.kind == "declared":
            return {port: "pipe" for port in rehearsal.keys if port != rehearsal.port}
        found = {each.key: each.way for each in unconfirmed}
        ways: dict[str, Way] = {}
        for port, key in rehearsal.keys.items():
            proof = self._proofs.of(key)
            way = proof.way if proof is not None and proof.holds_for(_sizes(rehearsal, port)) else found.get(key)
            if key.kind == "declared":
                way = "pipe" if self._proofs.is_believed(key) else None
            if way is not None and port != rehearsal.port:
                ways[port] = way
        return ways

    def is_fruitless(self, rehearsal: Rehearsal) -> bool:
        """Whether the last rehearsal of the same input has run, and has shown nothing."""
        if rehearsal.name in self._last:
            return self._last[rehearsal.name] is not None
        about = rehearsal.key.about
        return any(entry.is_fruitless and entry.key.about == about for entry in self._inconclusive.entries)

    def is_hopeless(self, rehearsal: Rehearsal) -> bool:
        """Whether rehearsals with such files have shown nothing more in several runs."""
        known = None if rehearsal.key.kind == "declared" else self._inconclusive.of(rehearsal.key)
        return known is not None and known.is_hopeless and rehearsal.size <= known.bytes

    def go_on(self, rehearsal: Rehearsal) -> None:
        """Let a rehearsal begin with what earlier ones have not tried.

        What these have shown holds under the same key for files that are no larger, as a proof does.
        """
        if rehearsal.key.kind != "declared" and (shown := self._shown(rehearsal)) is not None:
            rehearsal.go_on(shown)

    def _shown(self, rehearsal: Rehearsal) -> Shown | None:
        key, sizes = rehearsal.key, tuple(rehearsal.job.sizes)
        proof, known = self._proofs.of(key), self._inconclusive.of(key)
        if proof is not None:
            if proof.way is None or proof.excerpt is not None or self._proofs.is_wanted(key, sizes):
                return None
            return Shown(proof.way, tuple(each.read for each in proof.extents_of(len(sizes))), sizes, True)
        return known.shown if known is not None and known.shown is not None and known.shown.holds_for(sizes) else None

    def expect(self, rehearsal: Rehearsal) -> None:
        """Note that a rehearsal is to prove something."""
        key = rehearsal.key
        self._expected[key] = tuple(Extent(size, size) for size in rehearsal.job.sizes)
        if key.kind == "declared":
            self._compared.add((key.tool, key.port))

    def expect_no_more(self, rehearsal: Rehearsal) -> None:
        """Note that a rehearsal proves nothing, because its job has failed. The next attempt is rehearsed anew."""
        self._expected.pop(rehearsal.key, None)
        self._compared.discard((rehearsal.key.tool, rehearsal.key.port))

    def give_up(self, rehearsal: Rehearsal, why: str) -> None:
        """Note that a rehearsal shows nothing, because something that it needs goes.

        A later job may show it. The user is told once for each input and reason.
        """
        self.expect_no_more(rehearsal)
        if (rehearsal.name, why) not in self._given_up:
            self._given_up.add((rehearsal.name, why))
            self.tell(rehearsal, unknown(why))

    def keep(self, rehearsal: Rehearsal) -> None:
        """Keep for later runs what a rehearsal has shown that has to end with the run."""
        if rehearsal.spent:
            self._ended.append(rehearsal)

    def proof_of(self, rehearsal: Rehearsal, finding: Finding) -> Proof | None:
        """Tell the user of a finding, record it, and return its proof; None: the finding proves nothing."""
        finding = self._with_bound(rehearsal, finding)
        self.tell(rehearsal, finding)
        if not finding.is_known:
            return None
        return proof_of(rehearsal, finding, self._proofs.failures(rehearsal.key), time.time())

    async def stands(self, rehearsal: Rehearsal, finding: Finding) -> bool:
        """Whether no other run has proven another input of the job meanwhile. Both would have to be tried together.

        If none has, the file of the proofs has the proof from then on, so that other runs find it.
        """
        others = [key for port, key in rehearsal.keys.items() if port != rehearsal.port]
        if finding.way is None or rehearsal.key.kind == "declared" or not others:
            return True

        def allows(new: Sequence[Proof]) -> bool:
            keys = {proof.key for proof in new}
            ways = self.ways_beside(rehearsal, ())
            return all(rehearsal.beside.get(port) == way for port, way in ways.items() if rehearsal.keys[port] in keys)

        proof = proof_of(rehearsal, finding, self._proofs.failures(rehearsal.key), time.time())
        return self._proofs.save_if(proof, others, allows)

    async def remember(self, proof: Proof) -> None:
        """Keep a proof for this run and later ones."""
        await self._proofs.remember(proof)

    def tell(self, rehearsal: Rehearsal, finding: Finding) -> None:
        """Tell the user of a finding, and record it."""
        if rehearsal.key.kind == "declared" and finding.is_known and finding.way is None:
            self._refuted[rehearsal.name] = finding.reason or "it is read in another way"
        logger.info(message_of(rehearsal, finding))
        if finding.is_known or rehearsal.spent:
            self._last[rehearsal.name] = None if finding.is_known else (rehearsal, finding.reason or "")
        self._has_found |= finding.is_known
        original = rehearsal.original
        self._record(
            RehearsedRecord(
                time=time.time(),
                job=original.job.name,
                step=original.step.name,
                input=rehearsal.name,
                way=finding.way,
                reason=finding.reason,
                known=finding.is_known,
                seconds=rehearsal.spent,
                bytes=rehearsal.size,
                excerpt=finding.excerpt,
            )
        )

    async def close(self) -> None:
        """Warn of declared inputs that are not read as declared, and keep for later runs what is still unknown."""
        for name, how in self._refuted.items():
            logger.warning(not_as_declared(name, f"{how}. The results of this run are those of the stream"))
        ended = ((each, _RUN_ENDED, False) for each in self._ended if self._is_wanted(each))
        last = [*ended, *((*each, True) for each in self._last.values() if each is not None)]
        entries = self._unknown(last)
        known = self._inconclusive.entries
        await self._inconclusive.forget([entry for entry in known if self._proofs.of(entry.key) is not None])
        if entries:
            await self._inconclusive.remember(*entries)

    def _is_wanted(self, rehearsal: Rehearsal) -> bool:
        is_wanted = self._proofs.is_wanted(rehearsal.key, rehearsal.job.sizes)
        return is_wanted or self._is_to_be_tried_together(rehearsal)

    def _unknown(self, last: Sequence[tuple[Rehearsal, str, bool]]) -> Sequence[InconclusiveRehearsal]:
        """The entries for later runs about rehearsals that have not come to their end.

        A run in which anything was shown was not in vain: the others have more time in the next one. Neither was a run
        that had the time for a rehearsal, if only the core had been idle.

        :param last: each with the reason, and whether no run is to wait for the next one
        """
        known = [self._inconclusive.of(rehearsal.key) for rehearsal, *_ in last]
        before = [None if entry is None else entry.shown for entry in known]
        shown = [rehearsal.shown or earlier for (rehearsal, *_), earlier in zip(last, before, strict=True)]
        is_vain = not (self._has_found or shown != before)
        return [
            InconclusiveRehearsal(
                rehearsal.key,
                rehearsal.original.step.name,
                time.time(),
                why,
                rehearsal.size,
                now,
                0
                if now != earlier
                else (0 if entry is None else entry.vain) + (is_vain and not rehearsal.had_its_time),
                is_fruitless and now == earlier,
            )
            for (rehearsal, why, is_fruitless), entry, earlier, now in zip(last, known, before, shown, strict=True)
        ]

    def _with_bound(self, rehearsal: Rehearsal, finding: Finding) -> Finding:
        """The finding. If it refutes what was proven with another file, its reason says so."""
        known = self._proofs.of(rehearsal.key)
        if not finding.is_known or finding.way is not None or known is None or not known.is_proven:
            return finding
        tried, bound = size_text(rehearsal.size), bound_of(known.extents)
        before = "before" if bound is None else f"up to {size_text(bound)}"
        return dataclasses.replace(finding, reason=f"{finding.reason} (with {tried}; it was proven {before})")


def proof_of(rehearsal: Rehearsal, finding: Finding, failures: int, now: float) -> Proof:
    """The proof that a finding is.

    :param failures: how often the tool has failed in rehearsals of this input before
    :param now: seconds since the epoch
    """
    if finding.has_failed:
        failures += 1
    elif finding.way is None:
        failures = 0  # the input is refused for good
    key, sizes = rehearsal.key, rehearsal.job.sizes
    # A declared stream is compared as a whole.
    read = sizes if key.kind == "declared" else finding.read
    beside = {} if key.kind == "declared" or finding.way is None else rehearsal.beside
    return Proof(
        key,
        rehearsal.original.step.name,
        now,
        finding.way,
        finding.reason,
        rehearsal.size,
        failures=failures,
        excerpt=finding.excerpt,
        extents=tuple(map(Extent, read, sizes)) if finding.way else (),
        beside=tuple(
            TriedBeside(port, way, tuple(sizes), _sizes(rehearsal, port)) for port, way in sorted(beside.items())
        ),
    )


def _sizes(rehearsal: Rehearsal, port: str) -> tuple[int, ...]:
    """The bytes of each file of an input of the rehearsed job."""
    return file_sizes(rehearsal.original.files(port))


def message_of(rehearsal: Rehearsal, finding: Finding) -> str:
    """The finding, in words for the user."""
    name = rehearsal.name
    if rehearsal.key.kind == "declared" and finding.is_known:
        declared = f"{name}, which is declared `streamable`,"
        if finding.way is None:
            return f"{declared} was compared with the complete file: {finding.reason}"
        if finding.reason:
            return coded(f"{declared} cannot be compared with the complete file: {finding.reason}", Code.NOT_PROVEN)
        return f"{declared} was compared with the complete file, in {rehearsal.spent:.1f} s"
    if finding.way is not None:
        how = "" if finding.excerpt is None else f"with the first {size_text(finding.excerpt)} "
        return f"{name} may be read while it is written: proven {how}in {rehearsal.spent:.1f} s"
    if finding.is_known:
        return coded(f"{name} is not streamed: {finding.reason}", Code.NOT_PROVEN)
    return f"Whether {name} may be read while it is written is not known yet: {finding.reason}"
