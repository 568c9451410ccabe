"""Inputs of a workflow that jobs get before the inputs have been read for their checksums.

StreamFlow reads each input of a workflow from beginning to end before a job may start. Here each file is read while the
jobs run. Jobs that need no checksum start at once, and the bytes they have read are in the page cache.

A small file has its checksum from the start: the content of such a file may decide what a proof holds for.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterable, Mapping, MutableMapping
from threading import Event
from typing import Any, cast

from msgspec import Struct, to_builtins
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.utils import get_entity_ids
from streamflow.core.workflow import Job, Port, Status, Token, Workflow
from streamflow.cwl.step import CWLInputInjectorStep
from streamflow.cwl.token import CWLFileToken
from streamflow.cwl.utils import get_path_from_token, register_data
from streamflow.cwl.workflow import CWLWorkflow
from streamflow.data.remotepath import LocalStreamFlowPath, StreamFlowPath
from streamflow.log_handler import logger
from streamflow.workflow.port import JobPort
from streamflow.workflow.token import ListToken, TerminationToken
from typing_extensions import Self

from streamflow_io._streamflow import find_job_token, has_lost_place

from .paths import SMALL_FILE, sha1_of
from .tokens import file_tokens, file_value

# Fields that say more of a File than its path, or that only other values have.
_MORE = frozenset({"contents", "secondaryFiles", "listing"})


class Complete(Struct, frozen=True):
    """The port where the token of the same file, with its checksum, will be.

    :ivar port_id: the identifier of the port in the database
    :ivar path: of the file, before a job was given it
    """

    port: str
    port_id: int
    path: str


class EarlyInputToken(CWLFileToken):  # type: ignore[misc]
    """A File with everything but its checksum, which only a small file has."""

    __slots__ = ("complete",)

    def __init__(self, value: Mapping[str, Any], complete: Complete, tag: str = "0", recoverable: bool = False) -> None:
        super().__init__(value, tag=tag, recoverable=recoverable)
        self.complete = complete

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        """Load the token. If the file has been read meanwhile, the token has its checksum, as any other File."""
        value, complete = row["value"]["file"], Complete(**row["value"]["complete"])
        for token_id in await loading_context.database.get_port_tokens(complete.port_id):
            checksum = _checksum_of(await loading_context.load_token(token_id), complete.path)
            value |= {} if checksum is None else {"checksum": checksum}
        return cls(value, complete, tag=row["tag"], recoverable=row["recoverable"])

    async def _save_value(self, database: Database) -> dict[str, Any]:
        return {"file": self.value, "complete": to_builtins(self.complete)}

    def retag(self, tag: str) -> EarlyInputToken:
        return EarlyInputToken(self.value, self.complete, tag=tag, recoverable=self.recoverable)

    def update(self, value: Mapping[str, Any]) -> EarlyInputToken:
        return EarlyInputToken(value, self.complete, tag=self.tag, recoverable=self.recoverable)

    async def checksum(self, workflow: Workflow, consumer: str) -> str:
        """Return the checksum of the file; waits until the file has been read.

        :param consumer: the name of the reader, as for :meth:`Port.get`
        :raises OSError: if the file could not be read
        """
        if (known := self.value.get("checksum")) is not None:
            return cast(str, known)
        if (port := workflow.ports.get(self.complete.port)) is None:
            # A workflow that was made to run some jobs again has only the ports that these jobs read.
            data, context = workflow.context.data_manager, workflow.context
            if (source := await data.get_source_location(self.complete.path, "__LOCAL__")) is None:
                raise OSError(f"{self.complete.path} is not there any more")
            return await _checksum(StreamFlowPath(source.path, context=context, location=source.location))
        checksum = _checksum_of(await port.get(consumer), self.complete.path)
        if checksum is None:
            raise OSError(f"{self.complete.path} was not read to its end")
        return checksum


class EarlyInputInjectorStep(CWLInputInjectorStep):  # type: ignore[misc]
    """Hands an input of the workflow on, and then reads its files for their checksums.

    :ivar complete: the port that gets the token with checksums; the regular port gets the token without them
    """

    def __init__(self, name: str, workflow: CWLWorkflow, job_port: JobPort, complete: Port) -> None:
        super().__init__(name, workflow, job_port)
        self.complete = complete
        self._reading: list[asyncio.Task[None]] = []

    async def process_input(self, job: Job, token_value: Any) -> Token:
        files: dict[str, StreamFlowPath] = {}
        if (early := await self._early(job, token_value, files)) is None:
            return cast(Token, await super().process_input(job, token_value))
        self._reading.append(asyncio.create_task(self._read(job, early, files)))
        return early

    async def terminate(self, status: Status) -> None:
        reading, self._reading = self._reading, []
        if status in (Status.FAILED, Status.CANCELLED):
            for task in reading:
                task.cancel()
        failed = [error for error in await asyncio.gather(*reading, return_exceptions=True) if error is not None]
        for error in failed:
            if isinstance(error, Exception):
                logger.error(f"{self.name.removesuffix('-injector')} cannot be read: {error}")
                status = Status.FAILED
        if not self.terminated:
            self.complete.put(TerminationToken(status))
        await super().terminate(status)

    async def _early(self, job: Job, value: Any, files: dict[str, StreamFlowPath]) -> Token | None:
        """Return the token of a File, or of a list of Files, without the checksums of large files.

        None: the value is no File, has other fields than a path and a format, or its file is not found.

        :param files: gets the files that are to be read, by path
        """
        if isinstance(value, list):
            elements = await asyncio.gather(*(self._early(job, element, files) for element in value))
            found = [element for element in elements if element is not None]
            return ListToken(found) if found and len(found) == len(elements) else None
        if not isinstance(value, Mapping) or value.get("class") != "File" or _MORE & value.keys():
            return None
        path = get_path_from_token(value)
        if path is None or not posixpath.isabs(path):
            return None
        locations = self.workflow.context.scheduler.get_locations(job.name)
        try:
            if (there := await self._find(path, locations)) is None:
                return None
            file = {**_value(value, path), "size": (size := await there.size())}
            if size <= SMALL_FILE:
                file["checksum"] = await _checksum(there)
        except (OSError, WorkflowExecutionException):
            # StreamFlow reads the file then, and reports the error.
            return None
        files[path] = there
        await register_data(
            context=self.workflow.context,
            connector=self.workflow.context.scheduler.get_connector(job.name),
            locations=locations,
            base_path=job.output_directory,
            token_value=file,
        )
        complete = Complete(self.complete.name, cast(int, self.complete.persistent_id), path)
        return EarlyInputToken(file, complete, recoverable=True)

    async def _find(self, path: str, locations: Iterable[ExecutionLocation]) -> StreamFlowPath | None:
        """Return the regular file at a path, from the first of the locations that has it; None: no location has it."""
        for location in locations:
            found = await StreamFlowPath(path, context=self.workflow.context, location=location).resolve()
            if found is not None and await found.is_file():
                return found
        return None

    async def _find_elsewhere(self, job: Job, path: str) -> StreamFlowPath:
        """Return the file at a path, from another location than those of a job.

        :raises OSError: if there is none
        """
        scheduler = self.workflow.context.scheduler
        target = scheduler.get_allocation(job.name).target
        available = await scheduler.get_connector(job.name).get_available_locations(service=target.service)
        lost = {location.name for location in scheduler.get_locations(job.name)}
        found = await self._find(path, [each.location for name, each in available.items() if name not in lost])
        if found is None:
            raise FileNotFoundError(f"no location has {path} any more")
        return found

    async def _read(self, job: Job, early: Token, files: Mapping[str, StreamFlowPath]) -> None:
        try:
            token = await _with_checksums(early, files)
        except (OSError, WorkflowExecutionException) as error:
            if not has_lost_place(self.workflow.context, job.name):
                raise
            logger.warning(f"{error}\nThe input {self.name.removesuffix('-injector')} is read on another location")
            token = await _with_checksums(early, {path: await self._find_elsewhere(job, path) for path in files})
        job_token = find_job_token(job.name, self.get_input_port("__job__").token_list)
        persisted = await self._persist_token(
            token=token, port=self.complete, input_token_ids=get_entity_ids([job_token, early])
        )
        self.complete.put(persisted)

    async def _save_additional_params(self, database: Database) -> MutableMapping[str, Any]:
        return {**await super()._save_additional_params(database), "complete": self.complete.persistent_id}

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        return cls(
            row["name"],
            cast(CWLWorkflow, await loading_context.load_workflow(row["workflow"])),
            cast(JobPort, await loading_context.load_port(row["params"]["job_port"])),
            await loading_context.load_port(row["params"]["complete"]),
        )


def _value(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A File as StreamFlow makes it, without size and checksum."""
    value = file_value(path)
    if basename := given.get("basename"):
        root, extension = posixpath.splitext(basename)
        value |= {"basename": basename, "nameroot": root, "nameext": extension}
    return value | ({"format": given["format"]} if given.get("format") else {})


async def _with_checksums(token: Token, files: Mapping[str, StreamFlowPath]) -> Token:
    if isinstance(token, EarlyInputToken):
        checksum = token.value.get("checksum") or await _checksum(files[token.complete.path])
        return CWLFileToken({**token.value, "checksum": checksum}, tag=token.tag, recoverable=True)
    return token.update(await asyncio.gather(*(_with_checksums(element, files) for element in token.value)))


async def _checksum(file: StreamFlowPath) -> str:
    """Return the checksum of a file in the form of CWL.

    :raises OSError: if the file cannot be read
    """
    if not isinstance(file, LocalStreamFlowPath):
        if not (checksum := await file.checksum()):
            raise OSError(f"{file} cannot be read where it is")
        return f"sha1${checksum}"
    cancelled = Event()
    try:
        return f"sha1${await asyncio.to_thread(sha1_of, str(file), cancelled)}"
    finally:
        cancelled.set()


def _checksum_of(token: Token, path: str) -> str | None:
    """The checksum of the file with this path in a token; None: no such file, or a file without checksum."""
    found = (file.value for file in file_tokens(token))
    return next((file.get("checksum") for file in found if get_path_from_token(file) == path), None)
