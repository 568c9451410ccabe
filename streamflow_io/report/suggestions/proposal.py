"""A hint for the next run, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from streamflow_io.hints.commit import CommitRule

from .simulation import CommitHint, GateHint, IOTaskHint, RequiredHint, SimulatedHint, SplitHint, StreamHint

#: Fields of a rule of a read session that give the size of a part.
CUTS = ("every", "parts", "chunk")


class Proposal(Struct, frozen=True):
    """A hint for the next run.

    :ivar hint: the hint in the simulation
    :ivar rule: the commit rule, for a commit
    :ivar n_files: the number of files, with `on_n_files`
    :ivar split: the fields of a rule of a read session, for a split
    :ivar is_sure: false: some operation could not be seen. The hint is to be tried, and does not count in sums
    :ivar saved: by how many seconds the run would have been shorter, with this hint alone
    :ivar earlier: by how many seconds the jobs of the hint would have started earlier, on average
    """

    hint: SimulatedHint
    evidence: str
    rule: CommitRule | None = None
    n_files: int | None = None
    split: Mapping[str, str | int] = field(default_factory=dict)
    is_sure: bool = True
    saved: float = 0.0
    earlier: float = 0.0

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
    def saves_at_most(self) -> bool:
        """Whether `saved` is an upper bound."""
        return isinstance(self.hint, StreamHint | SplitHint)

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
        return f"committed: {self.rule}" + (f", nFiles: {self.n_files}" if self.n_files else "")


class Refusal(Struct, frozen=True):
    """A hint that is not proposed.

    :ivar subject: as of a proposal
    :ivar what: the hint
    """

    subject: str
    what: str
    reason: str
