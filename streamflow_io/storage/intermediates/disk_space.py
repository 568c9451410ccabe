"""From the graph of a workflow and learned sizes to the space that a job needs, with that of the jobs after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Route
from streamflow_io.storage.admission.demand import J

from .disk_ledger import DiskDemand
from .disk_sizes import Certainty, StepSizes

# The number of steps after a job that count.
_STEPS = 3
_WORSE: tuple[Certainty, ...] = ("known", "estimated", "unknown")


class SpaceGraph:
    """The steps of a workflow, as far as they matter for space.

    :param routes: how outputs reach inputs
    :param gangs: steps that run at the same time because of streams
    :param read_once: the outputs whose files go, each when the only job that reads the file has ended
    """

    def __init__(
        self,
        routes: Iterable[Route],
        gangs: Sequence[Gang],
        sizes: StepSizes,
        read_once: Collection[tuple[str, str]] = (),
    ) -> None:
        self._sizes = sizes
        self._gangs = {step: (number, gang) for number, gang in enumerate(gangs) for step in gang.steps}
        # By step: the steps that read its outputs. Loops lead back.
        self._after: dict[str, dict[str, None]] = defaultdict(dict)
        # By step: the steps whose outputs it reads.
        self._before: dict[str, dict[str, None]] = defaultdict(dict)
        # By step: whether the files that reach an input go with the job that reads them.
        self._goes: dict[str, dict[str, bool]] = defaultdict(dict)
        for route in routes:
            if (reader := route.consumer) is not None:
                self._after[route.output.step][reader.step] = None
                self._before[reader.step][route.output.step] = None
                goes = route.output.whole in read_once
                self._goes[reader.step][reader.port] = self._goes[reader.step].get(reader.port, True) and goes

    def gang(self, step: str) -> int | None:
        """The number of the gang of a step; None: the step is in no gang."""
        found = self._gangs.get(step)
        return None if found is None else found[0]

    def goes(self, step: str, port: str) -> bool:
        """Whether the files of an input go when the job that reads them has ended."""
        return self._goes[step].get(port, False)

    def together(self, step: str, has_ended: Callable[[str], bool]) -> set[str]:
        """Return the steps whose jobs have to start together with a job, because of streams.

        The jobs that this job reads from run, or have ended: they are not among them. Neither are the other readers
        of these jobs, unless another job reads from both.

        :param has_ended: whether the job of a step of the gang has ended
        """
        if step not in self._gangs:
            return set()
        members = {other for other in self._gangs[step][1].steps if not has_ended(other)}
        before = self._reached(step, self._before)
        found: set[str] = set()
        waiting = [*self._after.get(step, ())]
        while waiting:
            other = waiting.pop()
            if other in members and other not in before and other not in found and other != step:
                found.add(other)
                waiting += [*self._after.get(other, ()), *self._before.get(other, ())]
        return found

    @staticmethod
    def _reached(step: str, ways: Mapping[str, Iterable[str]]) -> set[str]:
        found: set[str] = set()
        waiting = [step]
        while waiting:
            new = set(ways.get(waiting.pop(), ())) - found
            found |= new
            waiting += new
        return found

    def demand(self, job: J, step: str, inputs: int, together: Iterable[str] = (), frees: int = 0) -> DiskDemand[J]:
        """Return the space that a job needs.

        :param inputs: bytes of its input files
        :param frees: bytes of those that go when the job has ended
        :param together: the steps whose jobs start with this one
        """
        own = self._sizes.expect(step, inputs)
        size, certainty = own.bytes, own.certainty
        for member in together:
            expected = self._sizes.expect(member, own.bytes)
            size += expected.bytes
            certainty = max(certainty, expected.certainty, key=_WORSE.index)
        ahead = self._ahead(step, own.bytes, _STEPS)
        return DiskDemand(job, size, certainty, own.bytes, ahead, frees)

    def _ahead(self, step: str, written: int, steps: int) -> int:
        """The bytes that have to be free for the jobs after one."""
        if not steps:
            return 0
        return max((self._passing(reader, written, steps - 1) for reader in self._after.get(step, ())), default=0)

    def _passing(self, step: str, inputs: int, steps: int) -> int:
        size = self._sizes.expect(step, inputs).bytes
        frees = inputs if all(self._goes[step].values()) else 0
        return max(size, size - frees + self._ahead(step, size, steps))
