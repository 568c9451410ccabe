"""A trial of CAPIO on this machine, before a run relies on it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import aiofiles.os

from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob

from .guard import Guarded
from .installation import CapioError, Installation
from .reports import Reports, parse_reports, reports_obstacle
from .server import CapioServer
from .supported import COMMIT_CLOSES, held_files

_WRITER, _READER = "sfio.writer", "sfio.reader"
# In which a reader has opened its file, and is told of its end when that is told too soon.
_OPEN_SECONDS = 10.0
_END_SECONDS = 0.2


def check_capio(installation: Installation) -> str | None:
    """Try whether CAPIO works here as we use it: one program reads what another writes, and has its end from us.

    Takes about a second, and leaves nothing behind. Blocks.

    :return: the version of the server, if it says one
    :raises CapioError: if it does not work
    """
    # The caller may be in an event loop.
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, _try(installation)).result()
        except NodeRuntimeError as error:
            raise CapioError(str(error)) from None


async def _try(installation: Installation) -> str | None:
    def configure(name: str, directory: str) -> Configuration:
        return Configuration(name, (_WRITER, _READER), (held_files(directory, _WRITER, (_READER,)),))

    runtime = await EmbeddedRuntime.start()
    server: CapioServer | None = None
    try:
        server = await CapioServer.start(installation, runtime, configure)
        directory = await server.new_directory(_WRITER)
        file = str(directory / "file")
        names = ("copy", "seen", "none", "written", "read")
        text, (copy, seen, none, written, read) = "a line\n" * 1000, [runtime.directory / name for name in names]
        writer = await server.start_client("put", file, text, application=_WRITER, guarded=Guarded(written, directory))
        await server.finish_client(writer, "put")
        await server.client("wait", file, application=_WRITER)
        guarded = Guarded(read, inputs=(PurePosixPath(file),))
        reader = await server.start_client("show", file, application=_READER, stdout=seen, guarded=guarded)
        await _until_opened(reader, read)
        await asyncio.sleep(_END_SECONDS)
        if reader.exit.done():
            raise CapioError("a reader is given an end of file before there is one")
        await server.client(
            "collect", str(COMMIT_CLOSES), file, str(copy), file + "-none", str(none), application=_WRITER
        )
        await server.finish_client(reader, "show")
        async with aiofiles.open(copy) as copied, aiofiles.open(seen) as shown:
            are_whole = await copied.read() == text == await shown.read()
        if not are_whole or await aiofiles.os.path.exists(none):
            raise CapioError("what is read is not what was written")
        await _check_reports(server, written, read, copy)
        return server.version
    finally:
        if server is not None:
            await server.close()
        await runtime.close()


async def _until_opened(reader: NodeJob, reports: Path) -> None:
    """Wait until a reader has opened its file, as far as the guard sees that, or has ended."""
    deadline = time.monotonic() + _OPEN_SECONDS
    while not reader.exit.done() and time.monotonic() < deadline:
        if (await asyncio.to_thread(_reported, reports)).opened:
            return
        await asyncio.sleep(0.02)


async def _check_reports(server: CapioServer, written: Path, read: Path, copy: Path) -> None:
    """Look whether the guard has seen what was written and read: the run relies on it.

    :raises CapioError: if it has not
    """
    content = await asyncio.to_thread(server.guard.content, copy)
    for path in (written, read):
        reports = await asyncio.to_thread(_reported, path)
        contents = [*reports.contents.values(), *(reading.content for reading in reports.read)]
        why = reports_obstacle(reports, reports.opened)
        if why is not None or contents != [content]:
            raise CapioError(f"the guard in front of CAPIO does not see what programs do: {why or contents}")


def _reported(path: Path) -> Reports:
    """The reports of programs, which are empty if there is no file."""
    return parse_reports(path.read_text(encoding="utf-8") if path.exists() else "")
