"""Measurement of a storage by processes that write at the same time, and then read.

Nothing remains in any case. The files have no name when the first byte is written, so that the kernel frees them with
the last process. Each writer ends with this process, even if this process is killed.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import shutil
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Literal, cast

from streamflow_io.hints.errors import HintErrors

from . import writer
from .evaluation import Access, LoadLevel, Measurement, ProbeTransfer, Sample
from .mounted import mount_of

LEVELS = (1, 2, 4, 8)
LEAST_BYTES = max(LEVELS) * 1024 * 1024
Task = Literal["write", "read"]
Announce = Callable[[int, Task], None]

# A writer answers after its given time, one block and a sync. A writer that takes this much longer hangs.
_PATIENCE_SECONDS = 60.0
_END_SECONDS = 10.0
_REMOVE_SECONDS = 5.0


def measure(path: str, limit: int, seconds: float, announce: Announce = lambda writers, task: None) -> Measurement:
    """Measure with 1, 2, 4 and 8 writers.

    Takes at most `limit` bytes of space, and `seconds` for each of 8 samples. A sample is longer by at most the last
    block of each writer (half a second as a rule).

    :param path: a directory
    :param limit: bytes to write in each level, all writers together; at least LEAST_BYTES
    :param announce: called before each sample
    :raises HintErrors: if the directory cannot be written to, has too little space, or its storage hangs
    """
    path = os.path.abspath(path)
    _check(path, limit)
    try:
        access = _find_access(path)
        mount = mount_of(path)
        levels = tuple(_measure_level(path, count, access, limit, seconds, announce) for count in LEVELS)
    except OSError as error:
        raise _explained(path, error) from error
    return Measurement(path, mount, access, limit, seconds, levels)


def _check(path: str, limit: int) -> None:
    try:
        path.encode()
        directory = stat.S_ISDIR(os.stat(path).st_mode)
        volume = os.statvfs(path)
    except UnicodeEncodeError:
        raise _refusal(path, f"{path!r} is not UTF-8", "a path that a YAML file can hold") from None
    except (FileNotFoundError, NotADirectoryError):
        raise _refusal(path, f"{path} does not exist", "an existing directory") from None
    except OSError as error:
        raise _explained(path, error) from error
    if not directory:
        raise _refusal(path, f"{path} is not a directory", "a directory on the storage")
    if volume.f_flag & os.ST_RDONLY:
        raise _explained(path, OSError(errno.EROFS, ""))
    free = volume.f_bavail * volume.f_frsize
    # Some file systems of object stores do not know their size, and report 0 blocks.
    if volume.f_blocks and free < 2 * limit:
        raise _refusal(
            path,
            f"{path} has {free / 1e6:.0f} MB of free space, too little to write {limit / 1e6:.0f} MB and leave as much",
            f"more free space, or a lower --bytes (at least {LEAST_BYTES // 2**20}MiB)",
        )


def _refusal(path: str, message: str, allowed: str) -> HintErrors:
    return HintErrors.one(path, "PATH", message, allowed)


def _explained(path: str, error: OSError) -> HintErrors:
    if error.errno == errno.EROFS:
        return _refusal(path, f"{path} is read-only", "a directory that you can write to")
    if error.errno in (errno.EACCES, errno.EPERM):
        return _refusal(path, f"{path} is not writable for you", "a directory that you can write to")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _refusal(path, f"{path} became full, or your quota is used up", "more free space, or a lower --bytes")
    return _refusal(path, f"{path} cannot be measured: {error.strerror}", "a directory that you can write to")


def _find_access(path: str) -> Access:
    """Try direct I/O: some file systems refuse to open a file for it, some refuse the first write."""
    try:
        with _files_without_name(path, 1, os.O_DIRECT) as descriptors:
            os.pwrite(descriptors[0], mmap.mmap(-1, writer.ALIGNMENT), 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return "buffered"
    return "direct"


@contextmanager
def _files_without_name(path: str, count: int, flags: int) -> Iterator[list[int]]:
    """Open new files for reading and writing, and remove their names at once.

    :return: the descriptors. Those still in the list are closed at the end
    """
    directory = os.path.join(path, f".streamflow-io-probe-{uuid.uuid4().hex}")
    descriptors: list[int] = []
    try:
        os.mkdir(directory, 0o700)
        for number in range(count):
            file = os.path.join(directory, str(number))
            descriptors.append(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o600))
            os.unlink(file)
        with suppress(OSError):  # NFS keeps a hidden name until the file is closed.
            os.rmdir(directory)
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        _remove(directory)


def _remove(directory: str) -> None:
    end = time.monotonic() + _REMOVE_SECONDS
    while os.path.lexists(directory):
        try:
            shutil.rmtree(directory)
        except OSError as error:
            if time.monotonic() > end:
                message = f"{directory} could not be removed: {error.strerror}"
                raise _refusal(directory, message, "a directory where files can be removed") from error
            time.sleep(0.1)


def _measure_level(path: str, count: int, access: Access, limit: int, seconds: float, announce: Announce) -> LoadLevel:
    share = limit // count // writer.ALIGNMENT * writer.ALIGNMENT
    flags = os.O_DIRECT if access == "direct" else 0
    with _files_without_name(path, count, flags) as descriptors, ExitStack() as stack:
        writers: list[_WriterProcess] = []
        stack.callback(_end, writers)
        while descriptors:
            # The writer alone keeps the descriptor, so that the space is free again when the writer has ended.
            descriptor = descriptors.pop()
            try:
                writers.append(_WriterProcess(path, descriptor, share, seconds))
            finally:
                os.close(descriptor)
        for each in writers:
            each.answer(_PATIENCE_SECONDS)
        samples = []
        tasks: tuple[Task, ...] = ("write", "read")
        for task in tasks:
            announce(count, task)
            samples.append(_sample(writers, task, seconds + _PATIENCE_SECONDS))
        return LoadLevel(*samples)


def _sample(writers: Sequence[_WriterProcess], task: Task, patience: float) -> Sample:
    for each in writers:
        each.start(task)
    end = time.monotonic() + patience
    transfers = []
    for each in writers:
        answer = each.answer(max(0.0, end - time.monotonic()))
        if answer[0] == "error":
            number = int(answer[1])
            raise OSError(number, os.strerror(number))
        transfers.append(ProbeTransfer(float(answer[0]), float(answer[1]), int(answer[2])))
    return Sample(tuple(transfers))


class _WriterProcess:
    """A process that runs `writer`."""

    def __init__(self, path: str, descriptor: int, limit: int, seconds: float) -> None:
        self._path = path
        arguments = (descriptor, limit, seconds, os.getpid())
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", writer.__file__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(descriptor,),
            start_new_session=True,  # Ctrl-C is for this process, which ends the writers.
        )
        self.input = cast(IO[str], self.process.stdin)
        self.output = cast(IO[str], self.process.stdout)

    def start(self, task: Task) -> None:
        try:
            self.input.write(f"{task}\n")
            self.input.flush()
        except BrokenPipeError as error:
            raise self._killed() from error

    def answer(self, seconds: float) -> list[str]:
        """Return the words of the next line."""
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise _refusal(self._path, f"{self._path} hangs: a writer did not answer in time", "a storage that answers")
        words = self.output.readline().split()
        if not words:
            raise self._killed()
        return words

    def _killed(self) -> HintErrors:
        return _refusal(
            self._path,
            f"{self._path} cannot be measured: a writer was killed",
            "enough memory, and nothing that kills its processes",
        )


def _end(writers: Sequence[_WriterProcess]) -> None:
    for each in writers:
        each.process.kill()
    for each in writers:
        # A process that waits inside the kernel for a dead storage ends only when the kernel lets it go.
        with suppress(subprocess.TimeoutExpired):
            each.process.wait(_END_SECONDS)
        with suppress(BrokenPipeError):
            each.input.close()
        each.output.close()
