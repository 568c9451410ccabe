"""Which of several machines reads which part ahead, where jobs select their own part and may run on any of them. Pure.

Parts are dealt in the order of the list, to each machine as many as its cores can take. Jobs start in about the same
order, so that each machine reads those that come next there, and no other machine reads them, too.

Guarantees:

- A job that is dealt to a machine which has room goes there.
- A machine with room is left to others only as long as one of these waits that was dealt to it: no core is idle that a
  job could have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping


class Homes:
    """The machines of the jobs of one step. Names of jobs and machines may be any."""

    def __init__(self) -> None:
        self._homes: dict[str, str] = {}
        self._dealt: Counter[str] = Counter()
        # Where jobs run.
        self._places: dict[str, str] = {}
        self._waiting: set[str] = set()
        # How many of these were dealt to a machine.
        self._queues: Counter[str] = Counter()

    def deal(self, job: str, cores: Mapping[str, float]) -> str | None:
        """The machine that is to read the part of a job; it is asked once for each job, in the order of the list.

        :param cores: of each machine that may read it
        :return: None: none of them, as the job runs elsewhere
        """
        home = self._places.get(job)
        if home is None:
            home = min(cores, key=lambda name: (self._dealt[name] + 1) / max(cores[name], 1.0))
        elif home not in cores:
            return None
        self._dealt[home] += 1
        self._homes[job] = home
        if job in self._waiting:
            self._queues[home] += 1
        return home

    def wait(self, job: str) -> None:
        """A job can start as soon as there is room."""
        if job not in self._waiting:
            self._waiting.add(job)
            if (home := self._homes.get(job)) is not None:
                self._queues[home] += 1

    def choose(self, job: str, free: Collection[str]) -> Collection[str]:
        """Where a job is to run; nowhere: others wait for what is free.

        :param free: machines that have room for it
        """
        home = self._homes.get(job)
        if home is None or job not in self._waiting:
            return free
        if home in free:
            return (home,)
        return () if any(self._queues[name] for name in free) else free

    def place(self, job: str, machine: str) -> bool:
        """A job is about to run.

        :return: whether what it needs is read there, as far as that is known
        """
        self._places[job] = machine
        self.leave(job)
        return self._homes.get(job, machine) == machine

    def leave(self, job: str) -> None:
        """A job does not wait any more."""
        if job in self._waiting:
            self._waiting.remove(job)
            if (home := self._homes.get(job)) is not None:
                self._queues[home] -= 1
