"""What a streaming job delivers before it ends."""

from __future__ import annotations

import glob
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping
from copy import copy
from typing import TYPE_CHECKING, Literal

from streamflow.core.deployment import Connector
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.processor import CommandOutputProcessor
from streamflow.core.utils import get_tag, make_future
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.processor import CWLCommandOutput, CWLCommandOutputProcessor
from streamflow.workflow.token import ListToken

from streamflow_io.graph.io_graph import Delivery, OutputKind

from .commits import Commits
from .output_globs import certain_path, collects_only_files, file_processor, with_format
from .outputs import EarlyOutput, directory_of, early_port, element_port, order_port, relative
from .paths import job_path
from .secondary import Whole
from .tasks import to_the_end
from .tokens import ScatterSize, StreamSource, StreamToken, directory_value, file_value

if TYPE_CHECKING:
    from .steps import StreamingExecuteStep


class Publisher:
    """Delivers the tokens of one job, each once, over all of its attempts.

    A token that was delivered stays: what a later attempt writes must be the same (:class:`Commits`).
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
        self._globs: Mapping[str, tuple[str, ...]] = {}
        self._whole: Mapping[str, Whole] = {}
        self._delivered: set[str] = set()
        self._places: dict[str, dict[str, int]] = {output: {} for output in self._outputs}
        self._numbers = {output: itertools.count() for output in self._outputs}
        self._elements: dict[str, set[str]] = defaultdict(set)
        self._final: Mapping[str, Token] = {}
        self.commits = Commits(step.workflow.context, job, self._outputs)

    def begin(self, globs: Mapping[str, tuple[str, ...]]) -> None:
        """An attempt begins.

        :param globs: where its outputs are found, relative to the output directory of the job
        """
        self._globs = globs
        self._whole = {port: Whole(output, globs[port]) for port, output in self._outputs.items()}

    async def submitted(self) -> None:
        """The job is in the queue of a queue manager: what has a certain name lets its readers be in it, too."""
        for delivery in (Delivery.STREAM, Delivery.GATE):
            await self._deliver_certain(delivery)

    async def started(self) -> None:
        """The job runs: deliver to those at the gate what has a certain name."""
        await self._deliver_certain(Delivery.GATE)

    async def _deliver_certain(self, delivery: Delivery) -> None:
        for port, output in self._outputs.items():
            path = certain_path(self._step.output_processors[port], self._globs[port])
            if delivery in output.deliveries and path is not None:
                await self._deliver_early(output, delivery, path)

    async def opened(self, port: str, path: str) -> None:
        """A file of an output is there: deliver it to those that start with its producer."""
        output = self._outputs[port]
        file = relative(path, self._job.output_directory)
        for delivery in output.elements:
            if delivery.joins and (token := self._early_token(output, delivery, file)) is not None:
                await self._deliver_element(output, delivery, file, token)
        for delivery in output.deliveries:
            if not delivery.joins or early_port(delivery, port) in self._delivered:
                continue
            whole = directory_of(self._globs[port], file) if output.kind is OutputKind.DIRECTORY else file
            if whole is not None:
                await self._deliver_early(output, delivery, whole)

    async def committed(self, port: str, path: str) -> None:
        """A file of an output is committed by its rule: deliver it to those that wait for that.

        One with secondary files is when all of them are; one of which some never come is delivered at the end.
        """
        output = self._outputs[port]
        if output.kind is OutputKind.DIRECTORY:
            return
        file = relative(path, self._job.output_directory)
        for whole in self._whole[port].committed(file):
            await self._file_committed(output, whole)

    async def _file_committed(self, output: EarlyOutput, file: str) -> None:
        port = output.port
        commits = self.commits.files[port]
        for delivery in output.elements:
            if delivery is Delivery.STREAM:
                continue
            token = commits[file] = commits.get(file) or await self._file_token(port, file)
            if delivery is Delivery.COMMIT:
                await self._deliver_element(output, delivery, file, token)
        if output.kind is OutputKind.FILE and {Delivery.COMMIT, Delivery.GATE}.intersection(output.deliveries):
            token = commits[file] = commits.get(file) or await self._file_token(port, file)
            if Delivery.COMMIT in output.deliveries:
                await self._deliver(Delivery.COMMIT, port, token)

    async def complete(self, port: str, files: set[str]) -> None:
        """A Directory or File[] is committed as a whole.

        :param files: its committed files, relative to the output directory
        """
        output = self._outputs[port]
        waited_for = Delivery.COMMIT in output.deliveries and early_port(Delivery.COMMIT, port) not in self._delivered
        gated = Delivery.GATE in output.deliveries and not self.commits.has_directory(port)
        if output.kind is OutputKind.FILE or output.may_have_more or not (waited_for or gated):
            return
        token = await self._process(self._step.output_processors[port], port)
        if output.kind is OutputKind.DIRECTORY:
            await self.commits.add_directory(port, token)
        if output.kind is OutputKind.FILES:
            kept = [t for t in token.value if self.commits.path_of(t) in files]
            self.commits.add_list(port, kept)
            token = ListToken(kept, tag=self._tag)
        if waited_for:
            await self._deliver_committed(output, token)

    async def unchanged(self) -> dict[str, Token]:
        """The outputs that are one file of a fixed name, committed and the same now, by output.

        For small jobs it is much cheaper than to collect them again, which would make equal tokens.
        """
        found = {}
        for port, commits in self.commits.files.items():
            output = self._outputs[port]
            if output.kind is OutputKind.FILE and not output.secondary and tuple(commits) == self._globs[port]:
                ((file, token),) = commits.items()
                if not glob.has_magic(file) and await self._is_unchanged(port, file, token):
                    found[port] = token.update(dict(token.value))
        return found

    async def _is_unchanged(self, port: str, file: str, token: Token) -> bool:
        path = job_path(self._step.workflow.context, self._job, f"{self._job.output_directory}/{file}")
        return (
            collects_only_files(self._step.output_processors[port])
            and token.value["path"] == str(path)  # in a later attempt it is not
            and not await path.is_symlink()
            and token.value["checksum"] == f"sha1${await path.checksum()}"
        )

    async def finish(self, tokens: Mapping[str, Token]) -> None:
        """The outputs are on their regular ports: deliver what is left.

        :param tokens: the same, which were checked
        """
        self._final = tokens
        for port, output in self._outputs.items():
            if (final := tokens.get(port)) is None:
                continue
            if isinstance(final, ListToken):
                for element in final.value if output.elements else ():
                    for delivery in output.elements:
                        file = self.commits.path_of(element)
                        await self._deliver_element(output, delivery, file, element.update(element.value))
            for delivery in output.deliveries:
                if delivery is Delivery.COMMIT:
                    await self._deliver_committed(output, final.update(final.value))
                else:
                    await self._deliver(delivery, port, final.update(final.value))

    def replacement(self, port: str, path: str) -> Token | None:
        """What an output is in the end, when the job has ended, where others have begun to read another file.

        :param path: that other file, relative to the output directory of the job
        """
        return self._final.get(port) if path in self.commits.replaced.get(port, ()) else None

    async def final(self, port: str, path: str) -> Token:
        """The token of a file or directory that is final, for a reader that cannot have it before.

        :param path: relative to the output directory of the job
        :return: that of another one if it has taken the place of this one
        :raises UnrecoverableWorkflowException: if the job has succeeded without it
        """
        if (replacement := self.replacement(port, path)) is not None:
            return replacement
        output = self._outputs[port]
        if (final := self._final.get(port)) is not None:
            for token in final.value if isinstance(final, ListToken) else [final]:
                if token.value is not None and self.commits.path_of(token) == path:
                    return token
            raise UnrecoverableWorkflowException(f"Job {self._job.name} has ended without {path}")
        if output.kind is OutputKind.DIRECTORY:
            token = await self._process(self._step.output_processors[port], port)
            if not self.commits.has_directory(port):
                await self.commits.add_directory(port, token)
            return token
        commits = self.commits.files[port]
        token = commits[path] = commits.get(path) or await self._file_token(port, path)
        return token

    async def _deliver(self, delivery: Delivery, port: str, token: Token) -> None:
        """Deliver an output, once."""
        if early_port(delivery, port) not in self._delivered:
            self.commits.deliver(port, token)
            await self._put(early_port(delivery, port), token)

    async def _deliver_committed(self, output: EarlyOutput, token: Token) -> None:
        """Deliver an output that is committed as a whole, once; a list with the order of its elements."""
        await self._deliver(Delivery.COMMIT, output.port, token)
        if output.elements and isinstance(token, ListToken) and order_port(output.port) not in self._delivered:
            order = self._order(output.port, token.value)
            await self._put(order_port(output.port), ScatterSize(order, tag=self._tag))

    async def _put(self, name: str, token: Token) -> None:
        if name not in self._delivered:
            self._delivered.add(name)
            await to_the_end(self._step.deliver(self._job, name, token))

    async def _deliver_early(self, output: EarlyOutput, delivery: Delivery, file: str) -> None:
        if (token := self._early_token(output, delivery, file)) is not None:
            await self._deliver(delivery, output.port, token)

    async def _deliver_element(self, output: EarlyOutput, delivery: Delivery, file: str, token: Token) -> None:
        """Deliver an element of a list, once."""
        name = element_port(delivery, output.port)
        elements = self._elements[name]
        if file in elements:
            return
        # The number is taken before the token is saved: another file may come meanwhile.
        elements.add(file)
        retagged = token.retag(f"{self._tag}.{self._number(output.port, file)}")
        self.commits.deliver(output.port, retagged)
        await to_the_end(self._step.deliver(self._job, name, retagged))

    def _order(self, port: str, tokens: Iterable[Token]) -> list[int]:
        """The numbers with which the elements of a list are delivered one by one, in its order."""
        numbers: dict[int, None] = {}
        for token in tokens:
            number = self._number(port, self.commits.path_of(token))
            # A file that is in the list twice is delivered once before it.
            numbers[next(self._numbers[port]) if number in numbers else number] = None
        return list(numbers)

    def _number(self, port: str, file: str) -> int:
        """The number of an element: that in which its file came."""
        found = self._places[port]
        if file not in found:
            found[file] = next(self._numbers[port])
        return found[file]

    def _early_token(self, output: EarlyOutput, delivery: Delivery, file: str) -> StreamToken | None:
        """The token of what is not committed yet. None: its format cannot be told, now or ever.

        :param file: relative to the output directory of the job
        """
        is_directory = output.kind is OutputKind.DIRECTORY
        gate: Literal["file", "directory"] | None = None
        if delivery is Delivery.GATE:
            gate = "directory" if is_directory else "file"
        path = f"{self._job.output_directory}/{file}"
        try:
            value = directory_value(path) if is_directory else file_value(path)
            value = with_format(self._step, self._job, output.port, value)
        except Exception:
            # Whatever an expression raises: it is evaluated again at the end of the job, which fails of it.
            return None
        return StreamToken(
            value,
            StreamSource(self._job.name, output.port, file, gate, output.rule.mode if is_directory else "update"),
            self._tag,
        )

    async def _file_token(self, port: str, file: str) -> Token:
        """The token of one file, made as StreamFlow makes it at the end of the job."""
        processor = copy(self._file_processor(port))
        processor.glob, processor.single, processor.optional = glob.escape(file), True, False
        return await self._process(processor, port)

    async def _process(self, processor: CommandOutputProcessor, port: str) -> Token:
        token: Token = await processor.process(
            copy(self._job),  # A later attempt has another output directory.
            make_future(CWLCommandOutput(None, Status.COMPLETED)),
            self._connectors.get(port),
            self._step.is_recoverable(self._job),
        )
        return token

    def _file_processor(self, port: str) -> CWLCommandOutputProcessor:
        processor = file_processor(self._step.output_processors[port])
        assert processor is not None, "only outputs with files are delivered early"
        return processor
