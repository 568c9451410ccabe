"""Declared splits before a run: the validity of their verdicts, and whether there are some."""

from __future__ import annotations

from msgspec.structs import replace

from streamflow_io.features.cuts.planning import trials
from streamflow_io.features.cuts.split_key import Declaration, verdict_key
from streamflow_io.features.cuts.verdicts import Verdict
from streamflow_io.graph.partitions import NOT_VERIFIED
from streamflow_io.hints.sessions import SessionRule

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
