"""Finds the way of a part to its readers, before a job says any part of a file."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Workflow
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.deployment_sites import deployment_kind
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import PartToken, parts_of
from streamflow_io.graph.io_graph import Input, Step
from streamflow_io.graph.partitions import are_here
from streamflow_io.graph.sites import SiteKind
from streamflow_io.hints.inheritance import port_path
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.protocol import Event, FilePart, FoundFile, Link, PartEvent
from streamflow_io.runtime.remote import RemoteRuntime
from streamflow_io.storage.storages import Storages

#: Gives the inputs that read the parts of an output, by its step and port.
PartReaders = Callable[[str, str], Sequence[Input]]


class CutFile(Struct, frozen=True):
    """A file whose parts are read.

    :ivar path: by which the split finds the file, perhaps a link
    :ivar is_here: whether all readers are on the driver's node, as the split is
    :ivar found: the file where the split runs, with the path by which readers find the file, if they see it
    :ivar from_home: whether all readers may have their parts from the location of the split
    :ivar grows: whether the file was still written when its first part was said
    """

    path: str
    is_here: bool
    found: FoundFile | None = None
    from_home: bool = True
    grows: bool = False

    def as_read(self, part: PartEvent) -> PartEvent:
        """A part, with the file as its readers find it: elsewhere its device has another number."""
        if self.is_here:
            return part
        # The split may have replaced the link by a file of its own, which only its own path leads to.
        identity, path = replace(part.identity, device=None), part.path
        if self.found is not None and identity == replace(self.found.identity, device=None):
            path = self.found.path
        return replace(part, path=path, identity=identity)

    async def events(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """The events of a split, with each part as :meth:`as_read` returns it."""
        async for event in events:
            yield self.as_read(event) if isinstance(event, PartEvent) else event


def known_as(part: FilePart) -> FilePart:
    """A part, as it is known at all nodes: the device of the file has another number at each."""
    return replace(part, identity=replace(part.identity, device=None))


class PartSites(Struct, frozen=True):
    """Where a run has files, and jobs that read parts of them.

    :ivar readers: gives the inputs that read the parts of an output
    """

    workflow: Workflow
    readers: PartReaders
    context: StreamFlowContext
    runtimes: NodeRuntimes
    storages: Storages


class _UnseenError(Exception):
    """Some reader cannot have the bytes of the file; says why."""


class PartWays:
    """Finds the path by which jobs that read parts of a file find it, wherever they will run.

    A reader that does not see the file gets its part by a link, from the host of the job that has said the part.

    :param steps: all tools, by step path
    :param jobs: those that were scheduled, by name
    """

    def __init__(self, sites: PartSites, steps: Mapping[str, Step], jobs: Mapping[str, JobAllocation]) -> None:
        self._sites = sites
        self._steps = steps
        self._jobs = jobs
        self._told: set[str] = set()
        # By job that splits, and run directory, where it runs; and which others get its parts by a link.
        self._homes: dict[tuple[str, str], NodeRuntime] = {}
        self._linked: set[tuple[str, NodeRuntime]] = set()
        # Readers that see the file, and may have parts by a link, too, each with the name of its location.
        self._linkable: dict[tuple[str, NodeRuntime], str] = {}
        # The jobs whose file is read ahead.
        self._read_ahead: set[str] = set()
        # The location at which a part is read ahead; those that are not read where their split runs.
        self._read_at: dict[FilePart, str] = {}
        self._apart: set[FilePart] = set()

    async def of(self, job: Job, port: str, path: str, runtime: NodeRuntime, grows: bool = False) -> CutFile | None:
        """The file that a job is about to split. None: the job writes files, because a reader cannot have its part.

        The reason for None is said once.

        :param port: whose elements the parts are
        :param path: where the job finds the file
        :param runtime: where the job runs
        :param grows: whether the file is still written: on another host the file cannot be compared
        """
        step = get_job_step_name(job.name)
        readers = self._sites.readers(step, port)
        if are_here(self._steps[step].site) and all(are_here(reader.site) for reader in readers):
            return CutFile(path, is_here=True, grows=grows)
        self._homes[job.name, str(runtime.directory)] = runtime
        try:
            file = None if grows else await runtime.find(path)
            steps = dict.fromkeys(reader.step for reader in readers)
            targets = [(reader, target) for reader in steps for target in self._targets(reader)]
            tried = (self._try(job.name, runtime, *reader, file) for reader in targets)
            from_home = all(await asyncio.gather(*tried))
        except (_UnseenError, NodeRuntimeError) as error:
            self._tell(port_path(step, port), str(error))
            return None
        return CutFile(path, is_here=False, found=file, from_home=from_home, grows=grows)

    def read_ahead(self, job: JobState) -> None:
        """The file of a job is read ahead where it runs: each byte is read once, and sent from there."""
        self._read_ahead.add(job.name)

    def read_at(self, part: FilePart, location: str, is_at_split: bool) -> None:
        """Note where a part is read ahead: its jobs go there, or read the file where they are.

        :param location: its name
        :param is_at_split: whether the split runs there, which sends the part to jobs elsewhere
        """
        part = known_as(part)
        self._read_at[part] = location
        if not is_at_split:
            self._apart.add(part)

    def seen_at(self, job: JobState) -> dict[RemoteRuntime, str]:
        """The other locations at which readers of the parts of a job see its file, and may have parts by a link."""
        return {
            runtime: location
            for (split, runtime), location in self._linkable.items()
            if split == job.name and isinstance(runtime, RemoteRuntime)
        }

    def narrow(
        self, job: Job, available: MutableMapping[str, AvailableLocation]
    ) -> MutableMapping[str, AvailableLocation]:
        """Choose the location from which a job would get its parts; all locations, if the job does not fit there."""
        homes: set[str] = set()
        for part, said_by in {(known_as(token.part), token.said_by.job) for _, token in parts_of(job.inputs)}:
            if part in self._read_at:
                homes.add(self._read_at[part])
            elif said_by in self._read_ahead or any(split == said_by for split, _ in self._linked):
                homes.update(at.name for at in self._jobs[said_by].locations[:1])  # A job that moves has none.
        chosen = {key: location for key, location in available.items() if location.name in homes}
        return chosen or available

    def link(self, reader: NodeRuntime, token: PartToken) -> Link | None:
        """How a job gets a part from elsewhere. None: the job reads the file itself.

        :param reader: where the job runs
        """
        said_by = token.said_by
        is_linked = (said_by.job, reader) in self._linked
        if not is_linked and (said_by.job not in self._read_ahead or (said_by.job, reader) not in self._linkable):
            return None
        if not is_linked and known_as(token.part) in self._apart:
            return None
        # A part of another run has no home: its readers have the file alone.
        home = self._homes.get((said_by.job, said_by.run))
        return None if home is None else home.link(said_by.node_job, reader)

    def _targets(self, step: str) -> Iterator[Target]:
        yield from self._sites.workflow.steps[posixpath.join(step, "__schedule__")].binding_config.targets

    async def _try(self, split: str, home: NodeRuntime, reader: str, target: Target, file: FoundFile | None) -> bool:
        """Try whether the jobs of a step can read the file, at all locations of a target.

        :param file: where the split runs. None: the file is still written
        :return: whether the jobs may have their parts from where the split runs
        :raises _UnseenError: if a job of a step cannot read the file at one of the locations of a target
        :raises NodeRuntimeError: if there is no node runtime that would give it its part
        """
        if file is not None:
            self._check_storage(split, target, str(file.path))
        locations = await self._locations(target)
        return all(
            await asyncio.gather(*(self._try_at(split, home, reader, target, location, file) for location in locations))
        )

    async def _try_at(
        self,
        split: str,
        home: NodeRuntime,
        reader: str,
        target: Target,
        location: AvailableLocation,
        file: FoundFile | None,
    ) -> bool:
        runtime = await self._sites.runtimes.for_streams_at(location.location, target.workdir)
        if runtime is home:
            return True
        unseen = "it is still written" if file is None else await runtime.why_not(file)
        apart = await runtime.no_link(home)
        if unseen is not None and apart is not None:
            where = self._sites.runtimes.deployments.where(location.location)
            raise _UnseenError(f"{reader}, {where}, does not see the file ({unseen}), and cannot get it: {apart}")
        if apart is None:
            if unseen is None:
                self._linkable[split, runtime] = location.name
            else:
                self._linked.add((split, runtime))
        return apart is None

    async def _locations(self, target: Target) -> list[AvailableLocation]:
        """Ask for the locations of a target.

        :raises _UnseenError: if they cannot be told"""
        name = target.deployment.name
        try:
            # The step may not have asked for the deployment yet.
            await self._sites.context.deployment_manager.deploy(target.deployment)
            self._sites.runtimes.deployments.deploy_ahead(name)
            connector = self._sites.context.deployment_manager.get_connector(name)
            found = await connector.get_available_locations(service=target.service)
        except Exception as error:  # Each connector has its own.
            raise _UnseenError(f"{name}: {str(error) or type(error).__name__}") from error
        return list(found.values())

    def _check_storage(self, split: str, target: Target, path: str) -> None:
        """Check that a storage shows the file to the nodes of a queue manager, on which nothing can be tried.

        :raises _UnseenError: if they are not known to see the file
        """
        name = target.deployment.name
        is_queue = deployment_kind(target.deployment.type) is SiteKind.QUEUE
        if not is_queue or self._jobs[split].target.deployment.name == name:
            return
        storage = self._sites.storages.of(None, target, posixpath.dirname(path))
        is_shared = storage is not None and "scope" in storage.model_fields_set and storage.scope == "shared"
        if not is_shared and not path.startswith(f"{target.workdir}/"):
            raise _UnseenError(f"{path} is on no storage of {name} with `scope: shared`")

    def _tell(self, split: str, why: str) -> None:
        if split not in self._told:
            self._told.add(split)
            written = f"The files of {split} are written, as without its rule of `sfio:ReadSession`: {why}"
            logger.warning(coded(written, Code.PARTS_WRITTEN))
