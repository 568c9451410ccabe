"""What a streaming job delivers before it ends, and the check at its end that nothing of it has changed since."""

from __future__ import annotations

import asyncio
import glob
import hashlib
import os.path
from collections.abc import Iterable, Mapping, MutableMapping
from copy import copy
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from streamflow.core.deployment import Connector
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.processor import (
    CommandOutputProcessor,
    PopCommandOutputProcessor,
    UnionCommandOutputProcessor,
)
from streamflow.core.utils import get_tag, make_future
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.processor import CWLCommandOutput, CWLCommandOutputProcessor
from streamflow.data.remotepath import StreamFlowPath
from streamflow.workflow.token import ListToken

from streamflow_io.coordination.graph import OutputKind

from .outputs import EarlyOutput, commit_port, element_port, relative, stream_port
from .token import StreamSource, StreamToken

if TYPE_CHECKING:
    from .step import StreamingExecuteStep


class CommitChangedError(UnrecoverableWorkflowException):  # type: ignore[misc]
    """Something was delivered as committed, and is not the same any more."""


class Publisher:
    """Delivers the tokens of one job, each once, over all of its attempts.

    A token that was delivered stays: what a later attempt writes must be the same (:meth:`check`).
    """

    def __init__(
        self,
        step: StreamingExecuteStep,
        job: Job,
        outputs: Iterable[EarlyOutput],
        connectors: MutableMapping[str, Connector],
    ) -> None:
        self._step = step
        self._job = job
        self._tag: str = get_tag(job.inputs.values())
        self._connectors = connectors
        self._outputs = {output.port: output for output in outputs}
        self._delivered: set[str] = set()
        self._elements: dict[str, dict[str, Token]] = {output: {} for output in self._outputs}
        self._commits: dict[str, dict[str, Token]] = {output: {} for output in self._outputs}
        self._directories: dict[str, dict[str, str]] = {}

    async def opened(self, port: str, path: str) -> None:
        """A file of an output is there: deliver it to those that read it while it is written."""
        output = self._outputs[port]
        file = relative(path, self._job.output_directory)
        if output.elements == "stream":
            await self._deliver_element(output, file, self._stream_token(port, path))
        if output.stream and stream_port(port) not in self._delivered:
            await self._deliver(stream_port(port), self._stream_token(port, path))

    async def committed(self, port: str, path: str) -> None:
        """A file of an output is committed by its rule: deliver it to those that wait for that."""
        output = self._outputs[port]
        file = relative(path, self._job.output_directory)
        if output.elements == "commit" and file not in self._elements[port]:
            token = self._commits[port][file] = await self._file_token(port, file)
            await self._deliver_element(output, file, token)
        elif output.kind is OutputKind.FILE and output.commit and commit_port(port) not in self._delivered:
            token = self._commits[port][file] = await self._file_token(port, file)
            await self._deliver(commit_port(port), token)

    async def complete(self, port: str, files: set[str]) -> None:
        """A Directory or File[] is committed as a whole.

        :param files: its committed files, relative to the output directory
        """
        output = self._outputs[port]
        if not output.commit or output.kind is OutputKind.FILE or commit_port(port) in self._delivered:
            return
        token = await self._process(self._step.output_processors[port], port)
        if output.kind is OutputKind.DIRECTORY:
            self._directories[port] = await asyncio.to_thread(_tree, token)
        if output.kind is OutputKind.FILES:
            kept = [t for t in token.value if self._file_of(t) in files]
            self._commits[port] = {self._file_of(t): t for t in kept}
            token = self._list_of(output, kept)
        await self._deliver(commit_port(port), token)

    async def unchanged(self, globs: Mapping[str, tuple[str, ...]]) -> dict[str, Token]:
        """The outputs that are one file of a fixed name, committed and the same now, by output.

        For small jobs it is much cheaper than to collect them again, which would make equal tokens.

        :param globs: where the outputs are found, relative to the output directory of the job
        """
        found = {}
        for port, commits in self._commits.items():
            if self._outputs[port].kind is OutputKind.FILE and tuple(commits) == globs[port]:
                ((file, token),) = commits.items()
                if not glob.has_magic(file) and await self._is_unchanged(port, file, token):
                    found[port] = token.update(dict(token.value))
        return found

    async def _is_unchanged(self, port: str, file: str, token: Token) -> bool:
        context = self._step.workflow.context
        location = context.scheduler.get_locations(self._job.name)[0]
        path = StreamFlowPath(self._job.output_directory, file, context=context, location=location)
        return (
            _collects_only_files(self._step.output_processors[port])
            and token.value["path"] == str(path)  # in a later attempt it is not
            and not await path.is_symlink()
            and token.value["checksum"] == f"sha1${await path.checksum()}"
        )

    async def check(self, tokens: Mapping[str, Token]) -> None:
        """The job has succeeded: look whether what was delivered is still true.

        :param tokens: its outputs, by output
        :raises CommitChangedError: if a file that was delivered as committed is no longer what it was
        """
        for port, output in self._outputs.items():
            if (final := tokens.get(port)) is not None:
                await self._check(output, final)

    async def finish(self, tokens: Mapping[str, Token]) -> None:
        """The outputs are on their regular ports: deliver what is left.

        :param tokens: the same, which were checked
        """
        for port, output in self._outputs.items():
            if (final := tokens.get(port)) is None:
                continue
            if output.elements is not None and isinstance(final, ListToken):
                for token in final.value:
                    await self._deliver_element(output, self._file_of(token), token.update(token.value))
                token = self._list_of(output, final.value)
            else:
                token = final.update(final.value)
            if output.commit and commit_port(port) not in self._delivered:
                await self._deliver(commit_port(port), token)
            if output.stream and stream_port(port) not in self._delivered:
                await self._deliver(stream_port(port), final.update(final.value))

    async def _deliver(self, port: str, token: Token) -> None:
        self._delivered.add(port)
        await self._step.deliver(self._job, port, token)

    async def _deliver_element(self, output: EarlyOutput, file: str, token: Token) -> None:
        elements = self._elements[output.port]
        if file in elements:
            return
        # The place is taken before the token is saved: another file may come meanwhile.
        elements[file] = token = token.retag(f"{self._tag}.{len(elements)}")
        await self._step.deliver(self._job, element_port(output.port), token)

    def _list_of(self, output: EarlyOutput, tokens: Iterable[Token]) -> ListToken:
        """A list whose elements are the very tokens that were delivered, so that the scatter knows them."""
        elements = self._elements[output.port]
        return ListToken([elements.get(self._file_of(t)) or t.update(t.value) for t in tokens], tag=self._tag)

    def _stream_token(self, port: str, path: str) -> StreamToken:
        name = PurePosixPath(path)
        root, extension = os.path.splitext(name.name)
        value: dict[str, Any] = {
            "class": "File",
            "path": path,
            "location": "file://" + quote(path),
            "basename": name.name,
            "dirname": str(name.parent),
            "nameroot": root,
            "nameext": extension,
        }
        if (file_format := self._file_processor(port).file_format) is not None:
            value["format"] = file_format
        return StreamToken(
            value, StreamSource(self._job.name, port, relative(path, self._job.output_directory)), self._tag
        )

    async def _file_token(self, port: str, file: str) -> Token:
        """The token of one file, made as StreamFlow makes it at the end of the job."""
        processor = copy(self._file_processor(port))
        processor.glob, processor.single, processor.optional = glob.escape(file), True, False
        return await self._process(processor, port)

    async def _process(self, processor: CommandOutputProcessor, port: str) -> Token:
        token: Token = await processor.process(
            self._job,
            make_future(CWLCommandOutput(None, Status.COMPLETED)),
            self._connectors.get(port),
            self._step.is_recoverable(self._job),
        )
        return token

    def _file_processor(self, port: str) -> CWLCommandOutputProcessor:
        processor = file_processor(self._step.output_processors[port])
        assert processor is not None, "only outputs with files are delivered early"
        return processor

    def _file_of(self, token: Token) -> str:
        return relative(token.value["path"], self._job.output_directory)

    async def _check_directory(self, output: EarlyOutput, final: Token) -> None:
        committed = self._directories.get(output.port)
        if committed is None or final.value is None:
            return
        now = await asyncio.to_thread(_tree, final)
        changed = sorted(file for file in committed.keys() | now.keys() if committed.get(file) != now.get(file))
        if changed:
            raise CommitChangedError(
                f"Job {self._job.name}: the Directory of the output `{output.port}` was committed by "
                f"`{output.rule.committed}`, but was changed afterwards: {', '.join(changed[:5])}"
            )

    async def _check(self, output: EarlyOutput, final: Token) -> None:
        if output.kind is OutputKind.DIRECTORY:
            await self._check_directory(output, final)
            return
        tokens = final.value if isinstance(final, ListToken) else [final] if final.value is not None else []
        now = {self._file_of(token): token.value["checksum"] for token in tokens}
        for file, token in self._commits[output.port].items():
            rule = output.rule_for(file)
            committed = f"{file} of the output `{output.port}` was committed by `{rule.committed if rule else ''}`"
            if file not in now:
                raise CommitChangedError(f"Job {self._job.name}: {committed}, but is not there at the end")
            if now[file] != token.value["checksum"]:
                raise CommitChangedError(f"Job {self._job.name}: {committed}, but was written again afterwards")
        early = commit_port(output.port) in self._delivered and output.kind is OutputKind.FILES
        if early and (more := sorted(now.keys() - self._commits[output.port].keys())):
            raise CommitChangedError(
                f"Job {self._job.name}: the output `{output.port}` was committed by `{output.rule.committed}` with "
                f"{len(self._commits[output.port])} files, but {len(more)} more are there at the end: "
                f"{', '.join(more[:5])}"
            )


def _tree(token: Token) -> dict[str, str]:
    """The files below a Directory, with their checksums. Reads them all."""
    root = Path(token.value["path"])
    return {str(path.relative_to(root)): _checksum(path) for path in root.rglob("*") if path.is_file()}


def _checksum(path: Path) -> str:
    digest = hashlib.sha1(usedforsecurity=False)  # As StreamFlow's own
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def file_processor(processor: CommandOutputProcessor) -> CWLCommandOutputProcessor | None:
    """The processor that collects the files of an output. None: it is no File, File[] or Directory."""
    if isinstance(processor, UnionCommandOutputProcessor):
        return next((p for p in processor.processors if isinstance(p, CWLCommandOutputProcessor)), None)
    return processor if isinstance(processor, CWLCommandOutputProcessor) else None


def _collects_only_files(processor: CommandOutputProcessor) -> bool:
    """Whether an output can be nothing but files; StreamFlow adds to each what reads it from `cwl.output.json`."""
    processors = processor.processors if isinstance(processor, UnionCommandOutputProcessor) else [processor]
    return all(isinstance(p, CWLCommandOutputProcessor | PopCommandOutputProcessor) for p in processors)
