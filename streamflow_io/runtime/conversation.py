"""A conversation with `serve` in lines, through its standard input and output; the output of any `serve`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import MsgspecError
from msgspec.json import decode

from streamflow_io.processes import ends_within, kill_process, start_process

from .node_commands import NodeRuntimeError
from .node_runtime import NodeRuntime
from .protocol import ReadyEvent

if TYPE_CHECKING:
    from streamflow.core.data import StreamWrapper
    from streamflow.core.deployment import Shell

logger = logging.getLogger("streamflow")

#: Of a line, in bytes.
LINE_LIMIT = 2**25
_READ_SIZE = 2**16
_CLOSE_SECONDS = 10.0
_SAID_LINES = 20
_ALIVE = b'{"event":"alive"'
#: Printed by the plugin's scripts before they start `serve`. Earlier lines come from the shell, and do not matter.
MARK = b"sfio:"


class Conversation(ABC):
    """Lines in both directions.

    Guarantee: the program sees the end of its input when the driver is gone, however the driver has ended.
    """

    @abstractmethod
    async def line(self) -> bytes | None:
        """Return the next line, without its end. None: no line is left. For one reader at a time.

        :raises ValueError: if the line is too long
        :raises Exception: any, if the connection is lost
        """

    @abstractmethod
    async def send(self, line: str) -> None:
        """Send a line, given without its end.

        :raises Exception: any, if the program takes no more input
        """

    @abstractmethod
    async def close(self, seconds: float) -> None:
        """Close the program's input, and wait for its end for at most this time."""


class ProcessConversation(Conversation):
    """A conversation with a local process in a session of its own: interrupts of the driver do not reach it first."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, words: Sequence[str]) -> ProcessConversation:
        """Start the process.

        :raises OSError: if it cannot be started
        """
        process = await start_process(words, PIPE, PIPE, STDOUT, limit=LINE_LIMIT, start_new_session=True)
        return cls(process)

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def succeeds(self) -> bool:
        """Whether the process, which prints no more, ends with success."""
        return await ends_within(self._process, _CLOSE_SECONDS) and self._process.returncode == 0

    async def line(self) -> bytes | None:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).rstrip(b"\n") if not self._process.stdout.at_eof() else None

    async def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def close(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not await ends_within(self._process, seconds):
            logger.warning(f"sfio-node serve (process {self._process.pid}) does not end: killing it")
            await kill_process(self._process)


class ShellConversation(Conversation):
    """A conversation with a program that a connector of StreamFlow runs in place of a shell."""

    def __init__(self, shell: Shell, reader: StreamWrapper, writer: StreamWrapper) -> None:
        self._shell = shell
        self._reader = reader
        self._writer = writer
        self._text = bytearray()
        self._ended = asyncio.Event()

    async def line(self) -> bytes | None:
        while (end := self._text.find(b"\n")) < 0:
            if len(self._text) > LINE_LIMIT:
                raise ValueError("it has no end")
            try:
                more = await self._reader.read(_READ_SIZE)
            except Exception:
                self._ended.set()
                raise
            if not more:
                self._ended.set()
                return None
            self._text += more
        line = bytes(self._text[:end])
        del self._text[: end + 1]
        return line

    async def send(self, line: str) -> None:
        await self._writer.write(line.encode() + b"\n")

    async def close(self, seconds: float) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._writer.close(), seconds)
            # A reader sees the end. A shell of StreamFlow would be asked to exit, and killed if it cannot be asked.
            await asyncio.wait_for(self._ended.wait(), seconds)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._shell.close(), _CLOSE_SECONDS)


async def ready(output: Conversation, program: str, seconds: float) -> ReadyEvent:
    """Read until `serve` is ready.

    :param program: its name in messages
    :raises NodeRuntimeError: if it does not start, with its output
    """
    said: list[str] = []

    async def read() -> ReadyEvent | None:
        while (line := await output.line()) is not None:
            with contextlib.suppress(MsgspecError):
                return decode(line, type=ReadyEvent)
            if line.startswith(MARK):
                said.clear()
            else:
                said.append(line.decode(errors="replace").strip())
        return None

    try:
        with contextlib.suppress(asyncio.TimeoutError, ValueError):
            if (event := await asyncio.wait_for(read(), seconds)) is not None:
                return event
    except Exception as error:  # each connector raises errors of its own
        raise NodeRuntimeError(f"{program} does not start: {str(error) or type(error).__name__}") from error
    why = "; ".join(filter(None, said[-_SAID_LINES:])) or "there is no output"
    raise NodeRuntimeError(f"{program} does not start: {why}")


async def follow(
    output: Conversation, runtime: NodeRuntime, program: str, ended: str, silence: float | None = None
) -> None:
    """Pass the lines of `serve` to its runtime until it ends, or is silent for too long; then the runtime is lost.

    :param program: its name in messages
    :param ended: the reason for the loss if it has ended
    :param silence: seconds after which it counts as lost; None: silence does not matter
    """
    reason = ended
    try:
        while (line := await asyncio.wait_for(output.line(), silence)) is not None:
            if line.startswith(b"{") and not line.startswith(_ALIVE):
                runtime.receive(line)
            elif line.strip() and not line.startswith(_ALIVE):
                logger.warning(f"{program}: {line.decode(errors='replace').rstrip()}")
    except asyncio.TimeoutError:
        reason = f"{program} has sent nothing for {silence:.0f} s"
        runtime.note_silence()
    except ValueError as error:
        reason = f"{program} has sent a line that is too long: {error}"
    except Exception as error:  # each connector raises errors of its own
        reason = f"the connection to {runtime.location} is lost: {str(error) or type(error).__name__}"
    finally:
        runtime.lose(reason)
