"""Lending of idle cores: which cores that a job holds and does not use go to which ready job.

A job that waits, for a download or an instrument, needs fewer cores than it holds. Its idle cores are lent to jobs that
have everything else.

A lender that needs its cores again shares them with the borrowers until one of these ends. The lender never waits for
them. To keep that time short, a lender must have been idle for some time: as long as the longest job of the borrower's
step has taken. A lender loses no more time than it has waited itself.

Cores are lent whole, and nothing but cores is lent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

J = TypeVar("J", bound=Hashable)

#: Seconds for which a job has needed fewer cores when its node runtime reports so (`cores.rs`).
IDLE = 2.0


class Holder(Struct, Generic[J], frozen=True):
    """A job that has been given its place.

    :ivar places: the locations whose cores the job uses, for instance the locations of its container and its host
    :ivar cores: the cores that the job declares, and may use
    :ivar held: the cores that are accounted to the job, without borrowed ones
    :ivar lends: whether idle cores of the job may be lent
    """

    job: J
    step: str
    places: Set[str]
    cores: int
    held: int
    lends: bool = True


class Loan(Struct, Generic[J], frozen=True):
    lender: J
    borrower: J
    cores: int


class Wish(Struct, Generic[J], frozen=True):
    """A job that is ready, and lacks nothing but cores where it might start.

    :ivar capacities: the cores of each of its places
    :ivar lacking: how many cores the job lacks in each place where it lacks some; at least one entry
    """

    job: J
    step: str
    cores: int
    capacities: Mapping[str, float]
    lacking: Mapping[str, int]


class LoanAnswer(Struct, Generic[J], frozen=True):
    """The answer to a wish.

    :ivar loans: what the job may borrow. Empty: nothing
    :ivar again: when to ask again, if nothing happens before. None: need not be asked again
    """

    loans: Sequence[Loan[J]] = ()
    again: float | None = None


class _NeededCores(Struct, frozen=True):
    cores: int
    since: float


class Lending(Generic[J]):
    """The cores of running jobs that are lent. Any hashable object stands for a job.

    Guarantees: a core is lent only when no job needs it, as far as is known. A job lends no more than it holds and does
    not need, and never what it has borrowed. So at most as many cores are lent as exist. A job does not lend to jobs of
    its own step: cores may be what limits the number of these jobs.
    """

    def __init__(self) -> None:
        self._holders: dict[J, Holder[J]] = {}
        # The jobs in each place.
        self._at: defaultdict[str, dict[J, None]] = defaultdict(dict)
        # The needs of the jobs that have reported them.
        self._needs: dict[J, _NeededCores] = {}
        self._loans: list[Loan[J]] = []
        # Seconds of the longest job of each step.
        self._longest: dict[str, float] = {}

    @property
    def is_any_known(self) -> bool:
        """Whether the need of any job is known. Otherwise nothing is lent."""
        return bool(self._needs)

    @property
    def loans(self) -> Sequence[Loan[J]]:
        return tuple(self._loans)

    def started(self, holder: Holder[J], loans: Sequence[Loan[J]] = ()) -> None:
        """Record the place of a job. A place that the job had before is given up."""
        self.ended(holder.job)
        self._holders[holder.job] = holder
        for place in holder.places:
            self._at[place][holder.job] = None
        self._loans += loans

    def needs(self, job: J, cores: int | None, now: float) -> None:
        """Record that a job has needed `cores` of its cores for :data:`IDLE` seconds. None: forget the need."""
        if job not in self._holders:
            return
        if cores is None:
            self._needs.pop(job, None)
        else:
            self._needs[job] = _NeededCores(cores, now - IDLE)

    def ended(self, job: J, seconds: float | None = None) -> None:
        """Free all that a job holds. Cores that the job has lent stay with the borrowers.

        :param seconds: the time that the job took. None: the job has not succeeded
        """
        self._needs.pop(job, None)
        self._loans = [loan for loan in self._loans if loan.borrower != job]
        if (holder := self._holders.pop(job, None)) is None:
            return
        for place in holder.places:
            del self._at[place][job]
        if seconds is not None:
            self._longest[holder.step] = max(seconds, self._longest.get(holder.step, 0.0))

    def ask(self, wish: Wish[J], now: float) -> LoanAnswer[J]:
        """Return the loans that would let a job start, or when to ask again."""
        lenders = self._lenders(wish)
        idle = min((self._idle(place, cores) for place, cores in wish.capacities.items() if lenders), default=0.0)
        longest = self._longest.get(wish.step)
        # The borrower's step has no known length, and may take hours: leave one core for the lender.
        if wish.cores > idle - (longest is None):
            return LoanAnswer()
        lacking, loans, again = max(wish.lacking.values()), list[Loan[J]](), list[float]()
        for lender, spare, since in lenders:
            if since + (longest or 0.0) > now:
                again.append(since + (longest or 0.0))
            elif taken := min(spare, lacking):
                loans.append(Loan(lender, wish.job, taken))
                lacking -= taken
        if not lacking:
            return LoanAnswer(loans)
        return LoanAnswer(again=min(again, default=None))

    def borrowed(self, job: J) -> int:
        return sum(loan.cores for loan in self._loans if loan.borrower == job)

    def due(self) -> Iterator[tuple[J, int]]:
        """Yield each borrower of due cores, and their number. Cores are due if the lender needs them or has ended."""
        yield from ((loan.borrower, due) for loan, due in self._with_due() if due)

    def repay(self, job: J, cores: int) -> None:
        """Turn borrowed cores of a job into cores that the job holds.

        :raises ValueError: if fewer cores of the job are :meth:`due`
        """
        if cores > sum(due for borrower, due in self.due() if borrower == job):
            raise ValueError(f"{job} has not borrowed {cores} cores that are due")
        holder = self._holders[job]
        self._holders[job] = replace(holder, held=holder.held + cores)
        loans: list[Loan[J]] = []
        for loan, due in self._with_due():
            repaid = min(cores, due) if loan.borrower == job else 0
            cores -= repaid
            if repaid < loan.cores:
                loans.append(replace(loan, cores=loan.cores - repaid))
        self._loans = loans

    def _with_due(self) -> list[tuple[Loan[J], int]]:
        """Return each loan with the number of due cores. Idle cores of the lender cover its first loans."""
        left = {loan.lender: self._idle_of(loan.lender) for loan in self._loans}
        found = []
        for loan in self._loans:
            covered = min(left[loan.lender], loan.cores)
            left[loan.lender] -= covered
            found.append((loan, loan.cores - covered))
        return found

    def _idle(self, place: str, capacity: float) -> float:
        """Return the cores of a place that no job needs."""
        return capacity - sum(self._needed(self._holders[job]) for job in self._at[place])

    def _lenders(self, wish: Wish[J]) -> list[tuple[J, int, float]]:
        """Return the jobs that may lend, each with its spare cores and since when they are idle; longest idle first."""
        found = []
        for job in self._at[next(iter(wish.lacking))]:
            holder, need = self._holders[job], self._needs.get(job)
            may_lend = holder.lends and holder.step != wish.step and holder.places >= wish.lacking.keys()
            if need is not None and may_lend:
                lent = sum(loan.cores for loan in self._loans if loan.lender == job)
                if (spare := self._idle_of(job) - lent) > 0:
                    found.append((job, spare, need.since))
        return sorted(found, key=itemgetter(2))

    def _idle_of(self, job: J) -> int:
        """Return how many cores a job holds and does not need."""
        holder = self._holders.get(job)
        return 0 if holder is None else max(0, holder.held - self._needed(holder))

    def _needed(self, holder: Holder[J]) -> int:
        need = self._needs.get(holder.job)
        return holder.cores if need is None else min(need.cores, holder.cores)
