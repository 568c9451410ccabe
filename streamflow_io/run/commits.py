"""What a job has delivered before its end, and the check at its end that it was right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from streamflow.core.context import StreamFlowContext
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import Job, Token
from streamflow.log_handler import logger

from streamflow_io.graph.io_graph import Delivery, OutputKind

from .attempts import Attempt
from .early import EarlyDeliveries, file_tokens, path_of, with_secondary_files
from .outputs import EarlyOutput
from .paths import NoChecksumsError, checksums_below, job_path

# What StreamFlow says of a file where `sha1sum` is missing is something else.
_CHECKSUM = re.compile(r"sha1\$[0-9a-f]{40}")


class CommitChangedError(UnrecoverableWorkflowException):  # type: ignore[misc]
    """Something was delivered early, and is not the same any more."""


class Commits:
    """What was delivered, and committed, before the end of a job, over all of its attempts. A commit is final.

    :ivar files: by output and path, relative to the output directory of the job, the token of each File
    :ivar lists: of the outputs of type File[] that were committed as a whole, the files with which they were
    :ivar replaced: at the end of the job, by output, the files that others read before it: the output is another one
    """

    def __init__(self, context: StreamFlowContext, job: Job, outputs: Mapping[str, EarlyOutput]) -> None:
        self._context = context
        self._job = job
        self._outputs = outputs
        self.files: dict[str, dict[str, Token]] = {port: {} for port in outputs}
        self.lists: dict[str, frozenset[str]] = {}
        self.replaced: dict[str, frozenset[str]] = {}
        # None: it cannot be compared.
        self._directories: dict[str, dict[str, str] | None] = {}
        self._kept: dict[str, dict[str, str]] = {port: {} for port in outputs}
        self._delivered = {port: EarlyDeliveries() for port in outputs}
        self._changed: dict[tuple[str, str], Literal["written", "removed"]] = {}
        self._closed_again: set[tuple[str, str]] = set()

    def path_of(self, token: Token) -> str:
        """The path of a File or Directory, relative to the output directory of the job; as it is if it is elsewhere."""
        return path_of(token, self._job.output_directory)

    def deliver(self, port: str, token: Token) -> None:
        """An output, or an element of it, is delivered before the end of the job."""
        self._delivered[port].add(token, self._job.output_directory)

    def has_directory(self, port: str) -> bool:
        return port in self._directories

    async def add_directory(self, port: str, token: Token) -> None:
        """A Directory is committed as a whole. Reads all of its files."""
        self._directories[port] = None
        try:
            self._directories[port] = await self._checksums(token)
        except NoChecksumsError as error:
            self._cannot_compare(port, str(error))

    def add_list(self, port: str, tokens: list[Token]) -> None:
        """A File[] is committed as a whole, with these files."""
        self.files[port] = {self.path_of(token): token for token in tokens}
        self.lists[port] = frozenset(self.files[port])

    def change(self, port: str, file: str, how: Literal["written", "removed"]) -> None:
        """The node runtime says that a file is not what it was when it was committed."""
        self._changed[port, file] = how

    def close_again(self, port: str, file: str) -> None:
        """A file was closed after its commit."""
        self._closed_again.add((port, file))

    async def keep(self, attempt: Attempt) -> None:
        """An attempt has failed: what was streamed and committed of it is compared with what the next one writes.

        Reads these files. What was delivered otherwise has a checksum already.
        """
        for port, file in attempt.committed:
            if file is not None and self._is_streamed(port) and (port, file) not in self._changed:
                path = job_path(self._context, self._job, str(attempt.output_directory / file))
                if file not in self._kept[port] and (checksum := await path.checksum()):
                    self._kept[port][file] = f"sha1${checksum}"

    def _is_streamed(self, port: str) -> bool:
        output = self._outputs[port]
        return Delivery.STREAM in (*output.deliveries, *output.elements)

    def _error(self, port: str, file: str, how: Literal["written", "removed"]) -> CommitChangedError:
        what = {
            "written": "was written again afterwards",
            "removed": "is not there at the end (a rule with `files` leaves out files that have a temporary name)",
        }[how]
        return CommitChangedError(f"Job {self._job.name}: {self._committed(port, file)}, but {what}")

    def _committed(self, port: str, file: str) -> str:
        rule = self._outputs[port].rule_for(file) or self._outputs[port].rule
        return f"{file} of the output `{port}` was committed by `{rule.committed}`"

    async def check(self, tokens: Mapping[str, Token], attempt: Attempt) -> None:
        """The job has succeeded: look whether what was committed is still the same.

        :param tokens: its outputs, by output
        :param attempt: the one that has succeeded
        :raises CommitChangedError: if it is not
        """
        for port, output in self._outputs.items():
            final = tokens.get(port)
            if replaced := self._replaced_in(output, final, attempt):
                self.replaced[port] = replaced
            elif (how := self._delivered[port].difference(final, self._job.output_directory)) is not None:
                raise CommitChangedError(
                    f"Job {self._job.name}: of the output `{port}`, {how} (the tool's `cwl.output.json` says so, or a "
                    "file had a temporary name: a rule with `files` leaves such files out)"
                )
            if final is None:
                continue
            if output.kind is OutputKind.DIRECTORY:
                await self._check_directory(output, final)
            else:
                self._check_files(output, final)
        self._check_told()

    def _replaced_in(self, output: EarlyOutput, final: Token | None, attempt: Attempt) -> frozenset[str]:
        """The files that others have begun to read, where the output is another one that they can read instead.

        It had a temporary name, as a rule. They wait for its commit, so nobody has yet what they have made of it; but
        nothing else must depend on its name.
        """
        port = output.port
        replaced = self._delivered[port].replaced(final, self._job.output_directory)
        if final is None or not replaced or output.kind is not OutputKind.FILE:
            return frozenset()
        committed = {path for p, path in attempt.committed if p == port}
        if replaced.keys() & {*committed, *self.files[port], *self._kept[port]}:
            return frozenset()
        renamed = {*replaced.values()} != {final.value["basename"]}
        return frozenset() if renamed and output.fixed_name else frozenset(replaced)

    def _check_told(self) -> None:
        """Fail for what cannot be compared, because it was read before the end; warn of what is the same again."""
        for (port, file), how in sorted(self._changed.items()):
            output = self._outputs[port]
            gated = output.kind is OutputKind.DIRECTORY and Delivery.GATE in output.deliveries
            if gated or self._is_streamed(port):
                raise self._error(port, file, how)
            if file in self.files[port] or self.has_directory(port):
                logger.warning(
                    f"Job {self._job.name}: {self._committed(port, file)}, and written again with the same content"
                )
        for port, file in sorted(self._closed_again - self._changed.keys()):
            rule = self._outputs[port].rule_for(file)
            if rule is not None and rule.committed.kind == "on_close":
                logger.warning(
                    f"Job {self._job.name}: {self._committed(port, file)}, and closed again afterwards, unchanged: "
                    "if it is written in N goes, say `on_close:N`"
                )

    async def _check_directory(self, output: EarlyOutput, final: Token) -> None:
        committed = self._directories.get(output.port)
        if committed is None or final.value is None:
            return
        now = await self._checksums(final)
        changed = sorted(file for file in committed.keys() | now.keys() if committed.get(file) != now.get(file))
        if changed:
            raise CommitChangedError(
                f"Job {self._job.name}: the Directory of the output `{output.port}` was committed by "
                f"`{output.rule.committed}`, but was changed afterwards: {', '.join(changed[:5])}"
            )

    def _check_files(self, output: EarlyOutput, final: Token) -> None:
        files = {self.path_of(token): token for token in file_tokens(final)}
        now, committed = _checksums_of(files), _checksums_of(self.files[output.port])
        if any(checksum is not None and _CHECKSUM.fullmatch(checksum) is None for checksum in committed.values()):
            self._cannot_compare(output.port, "its location has no sha1sum")
        for file, checksum in {**self._kept[output.port], **committed}.items():
            if file not in now:
                raise self._error(output.port, file, "removed")
            if now[file] != checksum:
                raise self._error(output.port, file, "written")
        # Files that came later were committed, too, but nobody has them.
        handed_on = self.lists.get(output.port)
        if handed_on is not None and (more := sorted(files.keys() - handed_on)):
            raise CommitChangedError(
                f"Job {self._job.name}: the output `{output.port}` was committed by `{output.rule.committed}` with "
                f"{len(handed_on)} files, which others have, but {len(more)} more are there at the end: {_some(more)}"
            )

    def _cannot_compare(self, port: str, reason: str) -> None:
        logger.warning(
            f"Job {self._job.name}: the output `{port}` was committed, and whether it was changed afterwards cannot be "
            f"told from its content: {reason}"
        )

    async def _checksums(self, token: Token) -> dict[str, str]:
        """The files below a Directory, with their checksums. Reads them all."""
        return await checksums_below(job_path(self._context, self._job, token.value["path"]))


def _checksums_of(files: Mapping[str, Token]) -> dict[str, str | None]:
    """The checksums of files, and of their secondary files, by path."""
    return {
        path: value.get("checksum")
        for file, token in files.items()
        for path, value in with_secondary_files(file, token.value)
    }


def _some(files: list[str]) -> str:
    return ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
