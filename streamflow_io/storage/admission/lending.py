"""Which cores that a job holds, and does not use, are lent to which job that is ready.

A job that waits, for a download or an instrument, needs fewer cores than it holds: as many are lent as are idle, to
jobs that have all else. A job that needs its cores again shares them with those that have borrowed them, until one of
these ends: it never waits for them. To keep that short, a job borrows only from one that has been idle for at least as
long as the longest job of its step has taken. What a lender may lose is then no more than it has waited itself.

Cores are whole. Nothing but cores is lent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from operator import itemgetter

#: Seconds for which a job has needed fewer cores when its node runtime says it (`cores.rs`).
IDLE = 3.0


@dataclass(frozen=True)
class Holder:
    """A job that has been given its place.

    :ivar places: the locations whose cores it uses: that of its container and that of its host, for instance
    :ivar cores: that it declares, and may use
    :ivar held: those of them that are accounted to it, without what it has borrowed
    :ivar lends: whether its idle cores may be lent
    """

    job: str
    step: str
    places: Set[str]
    cores: int
    held: int
    lends: bool = True


@dataclass(frozen=True)
class Loan:
    lender: str
    borrower: str
    cores: int


@dataclass(frozen=True)
class Wish:
    """A job that is ready, and lacks nothing but cores where it might start.

    :ivar capacities: the cores of each of its places
    :ivar lacking: how many cores it lacks in those places where it lacks some; at least one
    """

    job: str
    step: str
    cores: int
    capacities: Mapping[str, float]
    lacking: Mapping[str, int]


@dataclass(frozen=True)
class LoanAnswer:
    """:ivar loans: what the job is lent; empty: nothing
    :ivar again: when it is to be asked again, if nothing happens before; None: it need not
    """

    loans: Sequence[Loan] = ()
    again: float | None = None


@dataclass(frozen=True)
class _Need:
    cores: int
    since: float


class Lending:
    """The cores of running jobs that are lent.

    Guarantees: when a core is lent, nobody needs it, as far as is known; a job lends no more than it holds and does not
    need, and never what it has borrowed, so that at most as much is lent as there is; none lends to jobs of its own
    step, because cores may be what keeps these from running all at once.
    """

    def __init__(self) -> None:
        self._holders: dict[str, Holder] = {}
        # Their names, by place.
        self._at: defaultdict[str, dict[str, None]] = defaultdict(dict)
        # Of jobs of which it is known.
        self._needs: dict[str, _Need] = {}
        self._loans: list[Loan] = []
        # Seconds of the longest job, by step.
        self._longest: dict[str, float] = {}

    @property
    def is_any_known(self) -> bool:
        """Whether it is known of any job what it needs; else nobody lends."""
        return bool(self._needs)

    @property
    def loans(self) -> Sequence[Loan]:
        return tuple(self._loans)

    def started(self, holder: Holder, loans: Sequence[Loan] = ()) -> None:
        """A job was given its place; one that has been given another one before has lost that."""
        self.ended(holder.job)
        self._holders[holder.job] = holder
        for place in holder.places:
            self._at[place][holder.job] = None
        self._loans += loans

    def needs(self, job: str, cores: int | None, now: float) -> None:
        """A job needs so many of its cores, None: that is not known; and has needed no more for :data:`IDLE`."""
        if job not in self._holders:
            return
        if cores is None:
            self._needs.pop(job, None)
        else:
            self._needs[job] = _Need(cores, now - IDLE)

    def ended(self, job: str, seconds: float | None = None) -> None:
        """A job holds nothing any more. What it has lent is still used by those to which it was.

        :param seconds: that it took; None: it has not succeeded
        """
        self._needs.pop(job, None)
        self._loans = [loan for loan in self._loans if loan.borrower != job]
        if (holder := self._holders.pop(job, None)) is None:
            return
        for place in holder.places:
            del self._at[place][job]
        if seconds is not None:
            self._longest[holder.step] = max(seconds, self._longest.get(holder.step, 0.0))

    def ask(self, wish: Wish, now: float) -> LoanAnswer:
        """What a job may borrow, so that it lacks nothing."""
        lenders = self._lenders(wish)
        idle = min((self._idle(place, cores) for place, cores in wish.capacities.items() if lenders), default=0.0)
        longest = self._longest.get(wish.step)
        # One that may take hours has to leave one for the lender.
        if wish.cores > idle - (longest is None):
            return LoanAnswer()
        lacking, loans, again = max(wish.lacking.values()), list[Loan](), list[float]()
        for lender, spare, since in lenders:
            if since + (longest or 0.0) > now:
                again.append(since + (longest or 0.0))
            elif taken := min(spare, lacking):
                loans.append(Loan(lender, wish.job, taken))
                lacking -= taken
        if not lacking:
            return LoanAnswer(loans)
        return LoanAnswer(again=min(again, default=None))

    def borrowed(self, job: str) -> int:
        return sum(loan.cores for loan in self._loans if loan.borrower == job)

    def due(self) -> Iterator[tuple[str, int]]:
        """Who has borrowed cores that their lenders need, or that are nobody's now, and how many."""
        yield from ((loan.borrower, due) for loan, due in self._with_due() if due)

    def repay(self, job: str, cores: int) -> None:
        """A job holds cores now that it had borrowed.

        :raises ValueError: if it has not borrowed so many that are :meth:`due`
        """
        if cores > sum(due for borrower, due in self.due() if borrower == job):
            raise ValueError(f"{job} has not borrowed {cores} cores that are due")
        holder = self._holders[job]
        self._holders[job] = replace(holder, held=holder.held + cores)
        loans: list[Loan] = []
        for loan, due in self._with_due():
            repaid = min(cores, due) if loan.borrower == job else 0
            cores -= repaid
            if repaid < loan.cores:
                loans.append(replace(loan, cores=loan.cores - repaid))
        self._loans = loans

    def _with_due(self) -> list[tuple[Loan, int]]:
        """Each loan, and how much of it is due: the first ones are covered by what their lender does not need."""
        left = {loan.lender: self._idle_of(loan.lender) for loan in self._loans}
        found = []
        for loan in self._loans:
            covered = min(left[loan.lender], loan.cores)
            left[loan.lender] -= covered
            found.append((loan, loan.cores - covered))
        return found

    def _idle(self, place: str, capacity: float) -> float:
        """The cores of a place that nobody needs."""
        return capacity - sum(self._needed(self._holders[job]) for job in self._at[place])

    def _lenders(self, wish: Wish) -> list[tuple[str, int, float]]:
        """Who may lend to a job, how many cores, and since when they are idle; longest first."""
        found = []
        for job in self._at[next(iter(wish.lacking))]:
            holder, need = self._holders[job], self._needs.get(job)
            may_lend = holder.lends and holder.step != wish.step and holder.places >= wish.lacking.keys()
            if need is not None and may_lend:
                lent = sum(loan.cores for loan in self._loans if loan.lender == job)
                if (spare := self._idle_of(job) - lent) > 0:
                    found.append((job, spare, need.since))
        return sorted(found, key=itemgetter(2))

    def _idle_of(self, job: str) -> int:
        """The cores that a job holds and does not need."""
        holder = self._holders.get(job)
        return 0 if holder is None else max(0, holder.held - self._needed(holder))

    def _needed(self, holder: Holder) -> int:
        need = self._needs.get(holder.job)
        return holder.cores if need is None else min(need.cores, holder.cores)
