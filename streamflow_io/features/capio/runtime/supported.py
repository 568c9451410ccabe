"""Decide which stream edges CAPIO serves, and why the embedded node runtime serves the others.

The limits of CAPIO (the 1.4 line of CAPIO-CL) are known from its sources; `docs/capio-runtime.md` has the table. Two
of its properties decide most. A file exists in the memory of `capio_server` only, so that a process without its library
does not see it. And a reader of a file is told sizes before the file is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile, application_name
from streamflow_io.graph.io_graph import Delivery, OutputKind, StreamEdge
from streamflow_io.graph.sites import SiteKind
from streamflow_io.hints.commit import CommitRule

# Some ask CAPIO for a file that they are about to make, and wait for ever. Some map files into memory. `sort` hangs in
# some runs.
HANGING_PROGRAMS = frozenset({"cp", "gzip", "gunzip", "install", "mv", "samtools", "sort", "zcat"})
# Processes that share an open file have one place in it; under CAPIO each has its own, and they write over each other.
SHELLS = frozenset({"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"})
# CAPIO counts all closes of a file, also those of its readers: only we reach this number, when the job has succeeded.
COMMIT_CLOSES = 1000
# Instead of outputs that are looked for, a tool may write this.
_JSON = "cwl.output.json"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=@%,:")


class CapioOutput(Struct, frozen=True):
    """An output of a step, as far as it matters for CAPIO.

    :ivar path: where it is found, relative to the job's output directory; None if only the job tells
    :ivar redirected: it is the job's standard output or standard error
    :ivar evaluated: its path is an expression, and known when the job starts
    """

    path: str | None
    redirected: bool = False
    evaluated: bool = False


class CapioStep(Struct, frozen=True):
    """A step, as far as it matters for CAPIO.

    :ivar program: the name of the program that is run, of a script that of its interpreter; None if only the job tells
    :ivar obstacle: why its jobs cannot run with CAPIO's library, if so
    :ivar writing_obstacle: why its jobs cannot work in CAPIO's directory, if so
    """

    program: str | None = None
    obstacle: str | None = None
    writing_obstacle: str | None = None
    outputs: Mapping[str, CapioOutput] = field(default_factory=dict)


class HeldOutputs(Struct, frozen=True):
    """The files of a job that CAPIO holds until the end of the job.

    :ivar streamed: the outputs that others read from CAPIO, by port: their names
    :ivar files: the names of all files that may be outputs of the job
    """

    streamed: Mapping[str, str]
    files: tuple[str, ...]


class CapioMapping(Struct, frozen=True):
    """How the edges of a workflow are divided.

    :ivar refused: those that the embedded runtime serves, and for each the reason: one sentence for the user
    :ivar steps: what is to be known of the steps, by path
    """

    served: tuple[StreamEdge, ...]
    refused: Mapping[StreamEdge, str]
    steps: Mapping[str, CapioStep] = field(default_factory=dict)

    def held(self, path: str, evaluate: Callable[[str], Sequence[str]]) -> HeldOutputs | None:
        """The files of a job that CAPIO holds. None: the step writes nothing into CAPIO, or this job cannot.

        :param evaluate: gives the globs of an output of the job, relative to its output directory
        """
        ports = {edge.route.output.port for edge in self.served if edge.route.output.step == path}
        if not ports:
            return None
        names: dict[str, str] = {}
        for port, output in self.steps[path].outputs.items():
            if output.redirected:
                continue
            globs = [output.path] if output.path is not None else evaluate(port)
            if len(globs) != 1 or _name_obstacle(globs[0]) is not None:
                return None
            names[port] = globs[0]
        streamed = {port: name for port, name in names.items() if port in ports}
        return HeldOutputs(streamed, tuple(dict.fromkeys((*names.values(), _JSON))))


def map_to_capio(edges: Iterable[StreamEdge], steps: Mapping[str, CapioStep]) -> CapioMapping:
    """Decide for each edge that is delivered early whether CAPIO serves it.

    :param edges: all stream edges; those that are delivered at termination are in neither part
    :param steps: facts about the steps, by path
    """
    early = [edge for edge in edges if edge.delivery is not Delivery.TERMINATION]
    refused = {edge: reason for edge in early if (reason := _obstacle(edge, steps)) is not None}
    while True:
        mixed = {
            edge: reason
            for edge in early
            if edge not in refused and (reason := _mixture(edge, early, refused)) is not None
        }
        if not mixed:
            break
        refused.update(mixed)
    return CapioMapping(tuple(edge for edge in early if edge not in refused), refused, steps)


def capio_configuration(name: str, directory: str, mapping: CapioMapping) -> Configuration:
    """The configuration of `capio_server`. Each job has a directory of its own below that of its run.

    The end of a file is ours to tell: a failed job ends, and closes its files, as one that succeeded. So no file is
    committed before :data:`COMMIT_CLOSES` closes, whatever its rule, and its bytes are readable as they are written.

    :param name: of the run; no other run on the node has it
    :param directory: `CAPIO_DIR`, absolute
    """
    consumers: dict[str, set[str]] = {}
    for edge in mapping.served:
        assert edge.route.consumer is not None
        consumers.setdefault(edge.route.output.step, set()).add(application_name(edge.route.consumer.step))
    files = [held_files(directory, application_name(step), sorted(readers)) for step, readers in consumers.items()]
    applications = {application for file in files for application in (*file.producers, *file.consumers)}
    return Configuration(name, tuple(sorted(applications)), tuple(sorted(files, key=lambda file: file.path)))


def held_files(directory: str, application: str, readers: Iterable[str]) -> CoordinatedFile:
    """All that the jobs of an application write, as `capio_server` is told of it.

    :param directory: `CAPIO_DIR`, absolute
    """
    path = f"{directory}/{job_directory(application, '*')}/*"
    rule = CommitRule("on_close", COMMIT_CLOSES)
    return CoordinatedFile(path, False, (application,), tuple(readers), rule, "no_update")


def job_directory(application: str, number: object) -> str:
    """The directory of one attempt of a job, relative to that of the run.

    :param number: of the attempt, among all of the run: a retry finds no file of an earlier attempt
    """
    return f"{application}-{number}"


def _obstacle(edge: StreamEdge, steps: Mapping[str, CapioStep]) -> str | None:
    """Why an edge by itself is not for CAPIO."""
    output, consumer = edge.route.output, edge.route.consumer
    assert consumer is not None
    for step, site in ((output.step, output.site), (consumer.step, consumer.site)):
        if site.kind is not SiteKind.LOCAL:
            outside = ", outside of containers" if site.kind is SiteKind.CONTAINERS else ""
            return f"{step} runs {site.where}: CAPIO serves only jobs of the driver's node{outside}"
    if edge.delivery is Delivery.COMMIT:
        return "CAPIO keeps files in memory: a step that waits for a commit in the file system would not see it"
    if edge.delivery is Delivery.GATE:
        return "CAPIO tells the size of a file before its commit, and cannot map it: that is for the gate"
    if output.kind is not OutputKind.FILE:
        return (
            f"{output.name} is a {output.kind.value}: its names are not known before the job, and CAPIO has no listing"
        )
    if edge.rule.committed.kind == "on_file":
        return "CAPIO does not implement `on_file`"
    if edge.rule.committed.closes > 1:
        return f"CAPIO counts the closes of readers, too: `{edge.rule.committed}` cannot be told it"
    for step in (output.step, consumer.step):
        known = steps.get(step, CapioStep())
        if known.obstacle is not None:
            return known.obstacle
        if known.program in HANGING_PROGRAMS:
            return f"`{known.program}` hangs under CAPIO ({step})"
        if known.program in SHELLS:
            return f"`{known.program}` is a shell, whose processes share open files: CAPIO mixes them up ({step})"
    return _producer_obstacle(output.step, output.port, steps.get(output.step, CapioStep()))


def _producer_obstacle(path: str, port: str, step: CapioStep) -> str | None:
    """Why what a step writes cannot be in CAPIO's memory, from where all of its outputs have to be collected."""
    if step.writing_obstacle is not None:
        return step.writing_obstacle
    streamed = step.outputs.get(port)
    if streamed is not None and streamed.redirected:
        return f"{path}/{port} is the standard output of its job, which is opened without CAPIO's library"
    for name, output in step.outputs.items():
        if output.redirected or output.evaluated:
            continue
        if output.path is None:
            return f"the name of {path}/{name} is not known before the job, and all outputs are collected by name"
        if (why := _name_obstacle(output.path)) is not None:
            return f"{path}/{name}: {why}"
    return None


def _name_obstacle(name: str) -> str | None:
    """Why CAPIO cannot hold a file of this name."""
    if "/" in name:
        return f"{name!r} is in a subdirectory"
    if name in ("", ".", "..") or not _ALLOWED.issuperset(name):
        return f"the name {name!r} has a space or another character that CAPIO cannot pass on"
    return None


def _mixture(edge: StreamEdge, early: Iterable[StreamEdge], refused: Mapping[StreamEdge, str]) -> str | None:
    """Why an edge cannot be for CAPIO when others are not: a job has one directory, and one way to be held."""
    output, consumer = edge.route.output, edge.route.consumer
    assert consumer is not None
    for other in early:
        if other not in refused:
            continue
        if other.route.output.step == output.step:
            return f"{other.route.output.name} is served by the embedded node runtime, and comes from the same jobs"
        target = other.route.consumer
        if other.delivery is Delivery.GATE and target is not None and target.step == consumer.step:
            return f"{target.name} is held at the gate, and the same jobs read it"
    return None
