"""What a job has delivered as committed, and the check at its end that nothing of it has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from streamflow.core.context import StreamFlowContext
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import Job, Token
from streamflow.log_handler import logger
from streamflow.workflow.token import ListToken

from streamflow_io.coordination.graph import Delivery, OutputKind

from .jobs import Attempt
from .outputs import EarlyOutput, relative
from .paths import checksums_below, files_below, job_path


class CommitChangedError(UnrecoverableWorkflowException):  # type: ignore[misc]
    """Something was delivered as committed, and is not the same any more."""


class Commits:
    """What was committed before the end of a job, over all of its attempts. A commit is final.

    :ivar files: by output and path, relative to the output directory of the job, the token of each File
    :ivar lists: the outputs of type File[] that were committed as a whole
    """

    def __init__(self, context: StreamFlowContext, job: Job, outputs: Mapping[str, EarlyOutput]) -> None:
        self._context = context
        self._job = job
        self._outputs = outputs
        self.files: dict[str, dict[str, Token]] = {port: {} for port in outputs}
        self.lists: set[str] = set()
        self._directories: dict[str, dict[str, str]] = {}
        self._kept: dict[str, dict[str, str]] = {port: {} for port in outputs}
        self._changed: dict[tuple[str, str], Literal["written", "removed"]] = {}
        self._closed_again: set[tuple[str, str]] = set()

    def path_of(self, token: Token) -> str:
        """The path of a File or Directory, relative to the output directory of the job."""
        return relative(token.value["path"], self._job.output_directory)

    def has_directory(self, port: str) -> bool:
        return port in self._directories

    async def add_directory(self, port: str, token: Token) -> None:
        """A Directory is committed as a whole. Reads all of its files."""
        self._directories[port] = await self._checksums(token)

    def add_list(self, port: str, tokens: list[Token]) -> None:
        """A File[] is committed as a whole, with these files."""
        self.files[port] = {self.path_of(token): token for token in tokens}
        self.lists.add(port)

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

    async def check(self, tokens: Mapping[str, Token]) -> None:
        """The job has succeeded: look whether what was committed is still the same.

        :param tokens: its outputs, by output
        :raises CommitChangedError: if it is not
        """
        for port, output in self._outputs.items():
            if (final := tokens.get(port)) is None:
                continue
            if output.kind is OutputKind.DIRECTORY:
                await self._check_directory(output, final)
            else:
                self._check_files(output, final)
            await self._check_number(output, final)
        self._check_told()

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
        tokens = final.value if isinstance(final, ListToken) else [final] if final.value is not None else []
        now = {self.path_of(token): token.value["checksum"] for token in tokens}
        committed = {file: token.value["checksum"] for file, token in self.files[output.port].items()}
        for file, checksum in {**self._kept[output.port], **committed}.items():
            if file not in now:
                raise self._error(output.port, file, "removed")
            if now[file] != checksum:
                raise self._error(output.port, file, "written")
        if output.port in self.lists and (more := sorted(now.keys() - committed.keys())):
            raise CommitChangedError(
                f"Job {self._job.name}: the output `{output.port}` was committed by `{output.rule.committed}` with "
                f"{len(committed)} files, but {len(more)} more are there at the end: {_some(more)}"
            )

    async def _check_number(self, output: EarlyOutput, final: Token) -> None:
        """Fail where there are more files than a rule counts on, also when nobody has seen fewer of them."""
        counting = [rule for rule in output.rules if rule.n_files is not None]
        if not counting or final.value is None:
            return
        if output.kind is OutputKind.DIRECTORY:
            files = await files_below(job_path(self._context, self._job, final.value["path"]))
        else:
            files = [self.path_of(token) for token in final.value] if isinstance(final, ListToken) else []
        for rule in counting:
            found = [file for file in files if output.rule_for(file) is rule]
            if rule.n_files is not None and len(found) > rule.n_files:
                raise CommitChangedError(
                    f"Job {self._job.name}: the output `{output.port}` is complete with {rule.n_files} files by "
                    f"`{rule.committed}`, but {len(found)} are there at the end: {_some(sorted(found))}"
                )

    async def _checksums(self, token: Token) -> dict[str, str]:
        """The files below a Directory, with their checksums. Reads them all."""
        return await checksums_below(job_path(self._context, self._job, token.value["path"]))


def _some(files: list[str]) -> str:
    return ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
