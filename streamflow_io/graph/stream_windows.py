"""Decides which outputs have a window: all readers of such a file stream it, and nothing needs the whole file.

Behind the slowest reader the bytes of the file are discarded while its job writes. So the file is never there as a
whole, and can be read only once. The job is paused when a reader is too far behind. Before its readers have begun, the
job is paused only if they wait for nothing else: what they wait for may need the cores of the paused job.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from streamflow_io.hints.globs import is_pattern, matches, overlap
from streamflow_io.hints.inheritance import port_path

from .io_graph import Delivery, HopKind, Output, OutputKind, Route, StreamEdge
from .last_readers import Removal, reader_of
from .sites import SiteKind

_AT = {
    Delivery.GATE: "at the gate",
    Delivery.COMMIT: "at commit",
    Delivery.PART: "in parts",
    Delivery.TERMINATION: "at termination",
}
# In a queue, and in pods, the producer does not see at once what its readers have read.
_KINDS = frozenset({SiteKind.LOCAL, SiteKind.HOSTS, SiteKind.CONTAINERS})
# A reader behind such a hop may never get a file, or only together with others.
_UNSURE = frozenset({HopKind.WHEN, HopKind.LINK_MERGE, HopKind.PICK_VALUE, HopKind.LOOP, HopKind.UNKNOWN})
#: The window of an output for which no rule says one, in bytes.
DEFAULT_SIZE = 256 * 10**6


class StreamWindow(Struct, frozen=True):
    """The window of an output, or why it has none.

    :ivar size: the most bytes that the slowest reader may be behind
    :ivar readers: the number of jobs that read each file
    :ivar why: why there is no window; None: no reason is known
    :ivar is_of_rule: whether a rule asks for it
    :ivar late: why the job is not paused before its readers have begun; None: the job is
    """

    step: str
    port: str
    size: int
    readers: int = 0
    why: str | None = None
    is_of_rule: bool = False
    late: str | None = None


class WindowFacts(Struct, frozen=True):
    """All that decides about windows.

    :ivar routes: how outputs reach inputs and workflow outputs
    :ivar removal: the readers of all files
    :ivar split: the inputs, as step and port, that are read in parts
    :ivar writers: by step: why its jobs cannot be paused
    :ivar need_files: by step and port of a reader: why its jobs may need the whole file
    :ivar never: why no output has a window; None: no such reason
    :ivar late: by step: why its jobs may wait before they start, though they have their input
    """

    outputs: Sequence[Output]
    routes: Sequence[Route]
    edges: Sequence[StreamEdge]
    removal: Removal
    split: frozenset[tuple[str, str]] = frozenset()
    writers: Mapping[str, str] = field(default_factory=dict)
    need_files: Mapping[tuple[str, str], str] = field(default_factory=dict)
    never: str | None = None
    late: Mapping[str, str] = field(default_factory=dict)


def plan_windows(facts: WindowFacts, everywhere: bool) -> tuple[StreamWindow, ...]:
    """Decide about the window of each output that asks for one.

    :param everywhere: whether each output that is streamed asks for a window, and not only those whose rules do
    """
    streamed = {
        (edge.route.output.step, edge.route.output.port) for edge in facts.edges if edge.delivery is Delivery.STREAM
    }
    found = []
    for output in facts.outputs:
        sizes = [rule.window for rule in output.rules if rule.window is not None]
        if sizes or (everywhere and (output.step, output.port) in streamed):
            size = sizes[0] if sizes else DEFAULT_SIZE
            readers = facts.removal.readers.get((output.step, output.port))
            why = facts.never or next(_obstacles(output, facts), None)
            number = 0 if readers is None else len(readers.jobs)
            late = None if why is not None else next(_delays(output, facts), None)
            found.append(StreamWindow(output.step, output.port, size, number, why, bool(sizes), late))
    return tuple(found)


def _delays(output: Output, facts: WindowFacts) -> Iterator[str]:
    """Yield all reasons why a reader may begin only when the job of an output has ended, or other jobs have.

    Those may need what the job holds, so that a pause would keep both waiting.
    """
    complete = _complete(output.step, facts)
    for edge in (edge for edge in facts.edges if edge.route.output == output):
        reader = edge.route.consumer
        if reader is None:
            continue
        if (late := facts.late.get(reader.step)) is not None:
            yield late
        if edge.begins is not None:
            yield f"{reader.step} starts when {edge.begins}"
        if any(hop.kind in _UNSURE for hop in edge.route.hops):
            yield f"{reader.step} may not read it"
        for step, port in sorted(_read_by(reader.step, facts)):
            if (step, port) != (output.step, output.port) and step not in complete:
                yield f"{reader.step} also gets {port_path(step, port)}"


def _complete(step: str, facts: WindowFacts) -> set[str]:
    """The steps that have ended when a job of a step starts."""
    early = {
        (edge.route.output.step, edge.route.consumer.step)
        for edge in facts.edges
        if edge.route.consumer is not None and edge.delivery is not Delivery.TERMINATION
    }
    found, seen, ahead = set[str](), {step}, [step]
    while ahead:
        reader = ahead.pop()
        before = {writer for writer, _ in _read_by(reader, facts)}
        found.update(writer for writer in before if (writer, reader) not in early)
        ahead += before - seen
        seen |= before
    return found - {step}


def _read_by(step: str, facts: WindowFacts) -> set[tuple[str, str]]:
    """The outputs, as step and port, that the jobs of a step get."""
    readers = facts.removal.readers.items()
    return {output for output, found in readers if step in map(reader_of, found.names)}


def _obstacles(output: Output, facts: WindowFacts) -> Iterator[str]:
    """Yield all reasons why an output has no window."""
    key = output.step, output.port
    if output.kind is not OutputKind.FILE or output.record is not None:
        yield f"it is no File of its own, but a {'field' if output.record else output.kind.value}"
    if (why := facts.removal.kept.get(key)) is not None:
        yield why
    if any(route.consumer is None for route in facts.routes if route.output == output):
        yield "it is a result of the workflow"
    edges = [edge for edge in facts.edges if edge.route.output == output]
    for edge in edges:
        if edge.delivery is not Delivery.STREAM:
            yield f"{_reader(edge)} gets it {_AT[edge.delivery]}"
    yield from _other_readers(output, edges, facts)
    if any(str(rule.committed) != "on_termination" for rule in output.rules):
        yield "its rule commits it before the end of its job"
    if (other := _same_file(output, facts.outputs)) is not None:
        yield f"the output {other.port} may have the same file"
    if (why := facts.writers.get(output.step)) is not None:
        yield f"{output.step} cannot be paused: {why}"
    for edge in edges:
        yield from _reader_obstacles(edge, facts)
    for route in facts.routes:
        other, to = route.output, route.consumer
        if (other.step, other.port) != key and other.step == output.step and to is not None and not route.by_name:
            # The job has ended only when no reader can need it to run again.
            yield f"{to.step} would wait for {other.name} until the readers of this output have ended"


def _other_readers(output: Output, edges: Sequence[StreamEdge], facts: WindowFacts) -> Iterator[str]:
    readers = facts.removal.readers.get((output.step, output.port))
    if readers is None or not edges:
        yield "no step streams it"
        return
    streams = {posixpath.join(edge.route.consumer.step, "__schedule__") for edge in edges if edge.route.consumer}
    others = sorted(readers.steps | {reader.step for reader in readers.jobs} - streams)
    if others:
        yield f"{others[0].removesuffix('/__schedule__') or 'another step'} may read it otherwise than once as a stream"
    elif len(readers.jobs) != len(edges):
        yield "not each of its readers streams it"


def _reader_obstacles(edge: StreamEdge, facts: WindowFacts) -> Iterator[str]:
    reader = edge.route.consumer
    if reader is None:
        return
    for step, site in ((edge.route.output.step, edge.route.output.site), (reader.step, reader.site)):
        if any(place.kind not in _KINDS for place in site.deployments):
            yield f"{step} runs {site.where}: windows are on the driver's node, on hosts, and in containers of both"
    if (reader.step, reader.port) in facts.split:
        yield f"{reader.name} is read in parts"
    if (why := facts.need_files.get((reader.step, reader.port))) is not None:
        yield f"{reader.name} may need the whole file: {why}"
    for other in facts.edges:
        to = other.route.consumer
        if other.delivery.joins and other is not edge and to is not None and to.step == reader.step:
            # Otherwise this reader may wait there for what the paused job, or one that waits for it, writes.
            yield f"{reader.step} also reads {other.route.output.name} while that is written"


def _same_file(output: Output, outputs: Iterable[Output]) -> Output | None:
    """Another output of the same job that may have the file, or a Directory with it; None: no such output."""
    own = output.globs
    for other in outputs:
        if other is output or other.step != output.step or not other.globs:
            continue
        if any(_may_hold(glob, mine) for glob in other.globs for mine in own):
            return other
    return None


def _may_hold(glob: str, mine: str) -> bool:
    """Whether a glob may find the file of another one, or a directory above it."""
    if is_pattern(mine):
        return True
    above, ways = mine, []
    while above:
        ways.append(above)
        above = posixpath.dirname(above)
    return glob.strip("/") in ("", ".") or any(overlap(glob, way) or matches(glob, way) for way in ways)


def _reader(edge: StreamEdge) -> str:
    return "a reader" if edge.route.consumer is None else edge.route.consumer.name
