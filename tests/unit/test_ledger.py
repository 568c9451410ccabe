"""The ledger: never more given than there is, nothing lost, whatever the order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamflow_io.storage.admission.ledger import Account, Ledger

CAPACITIES = {Account("scratch write"): 10, Account("ssd write", "n1"): 7, Account("ssd write", "n2"): 1}
JOBS = st.sampled_from([f"job{index}" for index in range(6)])
AMOUNTS = st.dictionaries(st.sampled_from(sorted(CAPACITIES, key=str)), st.integers(0, 8))


class LedgerMachine(RuleBasedStateMachine):
    """Allocates and releases in any order, beside a plain table of the amounts."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.holds: dict[str, dict[Account, int]] = {}
        for account, capacity in CAPACITIES.items():
            self.ledger.open(account, capacity)

    def allocated(self, account: Account) -> int:
        return sum(amounts.get(account, 0) for amounts in self.holds.values())

    @rule(job=JOBS, amounts=AMOUNTS)
    def allocate(self, job: str, amounts: dict[Account, int]) -> None:
        room = all(amount <= CAPACITIES[account] - self.allocated(account) for account, amount in amounts.items())
        assert self.ledger.fits(amounts) == room
        if room and job not in self.holds:
            self.ledger.allocate(job, amounts)
            self.holds[job] = dict(amounts)
            amounts.clear()  # What the caller does to its own table afterwards changes nothing.
        else:
            with pytest.raises(ValueError, match=job):
                self.ledger.allocate(job, amounts)

    @rule(job=JOBS)
    def release(self, job: str) -> None:
        assert self.ledger.release(job) == self.holds.pop(job, {})

    @rule(account=st.sampled_from(sorted(CAPACITIES, key=str)), capacity=st.integers(0, 20))
    def open_again(self, account: Account, capacity: int) -> None:
        self.ledger.open(account, capacity)

    @precondition(lambda self: self.holds)
    @rule()
    def release_all(self) -> None:
        for job in list(self.holds):
            self.release(job)
        assert all(self.ledger.free(account) == capacity for account, capacity in CAPACITIES.items())

    @invariant()
    def is_what_the_jobs_hold(self) -> None:
        for account, capacity in CAPACITIES.items():
            assert self.ledger.allocated(account) == self.allocated(account) <= capacity
            assert self.ledger.free(account) == capacity - self.allocated(account)
        for job in (f"job{index}" for index in range(6)):
            assert self.ledger.holds(job) == self.holds.get(job)


LedgerMachine.TestCase.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
TestLedger = LedgerMachine.TestCase
