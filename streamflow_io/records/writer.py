"""Writes the records of a run, without ever making the run wait or fail."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec
from streamflow.log_handler import logger
from typing_extensions import Self

from streamflow_io.files import stranger
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.values import readable

from .records import EndRecord, ProgressRecord, Record
from .runs import BEAT_SECONDS, PROGRESS_FILE, lock

# A killed run may lose a full second; the rest is for a slow disk.
INTERVAL = 0.5
_CLOSE_TIMEOUT = 10.0
_LONGEST_LINE = 2**20
# The first field of each object has a value, so a field without one follows a comma.
_WITHOUT_VALUE = re.compile(rb',"\w+":null')


def to_json(record: Record | ProgressRecord) -> bytes:
    """Return the JSON of a record. A field without a value is left out, and text that is not UTF-8 is made readable.

    :raises ValueError: if the record has no JSON
    """
    try:
        line = _ENCODER.encode(record)
    except UnicodeEncodeError:
        line = _ENCODER.encode(_readable(msgspec.to_builtins(record, enc_hook=_builtin)))
    # In JSON, a quote after a comma and before a letter begins a text. So no text of a record is changed.
    return _WITHOUT_VALUE.sub(b"", line)


def _readable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _readable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(each) for each in value]
    return readable(value) if isinstance(value, str) else value


def _builtin(value: object) -> object:
    """Return the text or number of an instance of a subclass, as parsers of YAML make it."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise ValueError(f"{type(value).__name__} has no JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_builtin)


class TelemetryWriter:
    """Appends records, one JSON object per line, in the order of :meth:`write`, and puts files beside them.

    One of these files has the newest progress of the run, for as long as the run goes on: see :meth:`show`.

    A thread serialises and writes twice a second. So the caller never waits for the disk, which may be the one that the
    run congests. A run that is killed loses at most its last second, and leaves whole lines, perhaps except the last.
    If the file cannot be written, one warning says so and all further records are dropped. The last record is then an
    end of the run without a status. Otherwise the time of the file changes now and then as long as the run goes on.

    The file is created with the first record, with mode 0600. The file must not exist: two runs never share one.

    :param locate: returns the path of the file, and may create directories. Called once, with the first record, in the
        writer's thread
    """

    def __init__(self, locate: Callable[[], Path], interval: float = INTERVAL, beat: float = BEAT_SECONDS) -> None:
        self._locate = locate
        self._interval = interval
        self._beat = beat
        self._path: Path | None = None
        # An empty tuple only wakes the thread.
        self._records: SimpleQueue[Record | tuple[str, bytes] | tuple[()] | None] = SimpleQueue()
        self._progress: ProgressRecord | None = None
        self._shown: ProgressRecord | None = None
        self._closing = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def write(self, record: Record | tuple[str, bytes] | tuple[()]) -> None:
        """Append a record. Raises nothing, returns at once, and does nothing after :meth:`close`.

        :param record: a record, or the relative path and content of a new file beside the telemetry. The file is there
            before the records that come after it
        """
        if self._stopped:
            return
        self._records.put(record)
        if self._thread is None:
            self._start()

    def show(self, progress: ProgressRecord) -> None:
        """Replace the progress of the run. Readers see a whole record, or none. Otherwise like :meth:`write`.

        A record that cannot be written is left out: the run can still be watched, without its byte streams and the
        causes for which its jobs wait.
        """
        self._progress = progress
        self.write(())

    def close(self) -> None:
        """Write pending records and end. Waits for the disk, but not for ever. May be called again."""
        self._stopped = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.close)
        self._records.put(None)
        self._closing.set()
        thread.join(_CLOSE_TIMEOUT)
        if thread.is_alive():
            late = f"The telemetry of this run is not complete: its disk did not answer for {_CLOSE_TIMEOUT} s"
            logger.warning(coded(late, Code.TELEMETRY_ENDS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._thread = None
            self._give_up(error)
        else:
            atexit.register(self.close)

    def _run(self) -> None:
        # ValueError: a record has no JSON.
        try:
            self._path = self._locate()
            with _create(self._path) as file:
                lock(file.fileno())
                try:
                    while self._write_batch(file):
                        self._write_progress(self._path.with_name(PROGRESS_FILE))
                except OSError:
                    _end_early(self._path)
                    raise
                finally:
                    with contextlib.suppress(OSError):
                        self._path.with_name(PROGRESS_FILE).unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _write_batch(self, file: FileIO) -> bool:
        """Wait for records, let some gather, and write them.

        :return: whether there may be more
        """
        batch = [self._next(file)]
        self._closing.wait(self._interval)
        try:
            while batch[-1] is not None:
                batch.append(self._records.get_nowait())
        except Empty:
            pass
        lines = bytearray()
        for record in batch:
            if isinstance(record, tuple):
                if record:
                    self._write_file(*record)
            elif record is not None:
                lines += to_json(record) + b"\n"
        rest = memoryview(lines)
        while rest:
            rest = rest[file.write(rest) :]
        return batch[-1] is not None

    def _next(self, file: FileIO) -> Record | tuple[str, bytes] | tuple[()] | None:
        """Wait for a record. Meanwhile, show other hosts, which may not see the lock, that the run goes on."""
        while True:
            try:
                return self._records.get(timeout=self._beat)
            except Empty:
                with contextlib.suppress(OSError):
                    os.utime(file.fileno())

    def _write_progress(self, path: Path) -> None:
        progress, before = self._progress, self._shown
        if progress is not None and progress is not before:
            self._shown = progress
            with contextlib.suppress(OSError):
                _replace(path, to_json(progress))

    def _write_file(self, name: str, content: bytes) -> None:
        assert self._path is not None
        path = self._path.parent / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)

    def _give_up(self, error: Exception) -> None:
        self._stopped = True
        logger.warning(coded(f"The telemetry of this run ends here, the run goes on: {error}", Code.TELEMETRY_ENDS))


def _end_early(path: Path) -> None:
    """Put the end of a run whose outcome is not known over the last records: on a full disk there is no more space.

    Without an end the run would look killed, and `streamflow-io clean` would remove what its results link to.
    """
    end = to_json(EndRecord(time.time())) + b"\n"
    with contextlib.suppress(OSError), open(path, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        begin = file.seek(max(0, size - _LONGEST_LINE))
        place = file.read().rfind(b"\n", 0, size - begin - len(end)) + 1
        if place > 0:
            file.seek(begin + place)
            file.write(end)
            file.truncate()


def _create(path: Path) -> FileIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (why := stranger(path.parent)) is not None:
        raise OSError(f"another user could change it: {why}")
    return open(path, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_APPEND, 0o600))


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}")
    with open(beside, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(content)
    os.replace(beside, path)
