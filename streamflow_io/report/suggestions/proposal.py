"""A hint for the next run, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from streamflow_io.hints.commit import CommitRule

#: The steps of a producer and a consumer.
Pair = tuple[str, str]
#: Fields of a rule of a read session that give the size of a part.
CUTS = ("every", "parts", "chunk")


class CommitHint(Struct, frozen=True):
    """An output is delivered at its commit."""

    output: str


class StreamHint(Struct, frozen=True):
    """An input reads an output while it is written."""

    output: str
    input: str


class GateHint(Struct, frozen=True):
    """The readers of an output start with its producer, and wait where they open the output."""

    output: str


class IOTaskHint(Struct, frozen=True):
    """The jobs of a step take no core."""

    step: str


class RequiredHint(Struct, frozen=True):
    """The jobs of a step, which take no core, move no faster than required."""

    step: str


class SplitHint(Struct, frozen=True):
    """The files of an output are parts of an input, and are not written."""

    output: str


Hint = CommitHint | StreamHint | GateHint | IOTaskHint | RequiredHint | SplitHint


class Proposal(Struct, frozen=True):
    """A hint for the next run.

    :ivar rule: the commit rule, for a commit
    :ivar split: the fields of a rule of a read session, for a split
    :ivar is_sure: false: some operation could not be seen. The hint is to be tried, and does not count in sums
    :ivar lead: the most seconds that any job would gain by the hint. 0: unknown
    :ivar gains: for each pair of steps, the most seconds by which the run would have been shorter
    """

    hint: Hint
    evidence: str
    rule: CommitRule | None = None
    split: Mapping[str, str | int] = field(default_factory=dict)
    is_sure: bool = True
    lead: float = 0.0
    gains: Mapping[Pair, float] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """The output, the edge or the step of the hint."""
        match self.hint:
            case CommitHint(output) | GateHint(output) | SplitHint(output):
                return output
            case StreamHint(output, target):
                return f"{output} -> {target}"
            case IOTaskHint(step) | RequiredHint(step):
                return step

    @property
    def saved(self) -> float:
        """The most seconds by which the run would have been shorter. 0: none, or unknown."""
        return sum(self.gains.values())

    @property
    def text(self) -> str:
        """The hint in few words."""
        if isinstance(self.hint, IOTaskHint):
            return "IOTask"
        if isinstance(self.hint, RequiredHint):
            return "storageBW: required"
        if isinstance(self.hint, StreamHint):
            return "streamable" if self.is_sure else "try streamable"
        if isinstance(self.hint, GateHint):
            return "start: producer"
        if isinstance(self.hint, SplitHint):
            what = (f"{name}: {self.split[name]}" for name in ("records", *CUTS) if name in self.split)
            return f"ReadSession, {', '.join(what)}"
        return f"committed: {self.rule}"


class Refusal(Struct, frozen=True):
    """A hint that is not proposed.

    :ivar subject: as of a proposal
    :ivar what: the hint
    """

    subject: str
    what: str
    reason: str
