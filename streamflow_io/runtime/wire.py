"""Messages as lines of JSON, and what follows from single messages."""

from __future__ import annotations

import json
from functools import cache
from os import stat_result
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ
from typing import Any, TypeVar

from msgspec import ValidationError, convert, to_builtins
from msgspec.json import Decoder
from msgspec.structs import replace

from .protocol import (
    Event,
    ExitEvent,
    FileIdentity,
    FilePart,
    JobSpec,
    PartEvent,
    RehearsalSpec,
    Said,
    Usage,
    WarningEvent,
)
from .values import Message

T = TypeVar("T")

# No program sends these to itself after a mistake. The kernel sends the last two for a limit of the user.
_KILLING = frozenset({SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ})


def text_of(message: Message) -> str:
    """A message as JSON in ASCII, without the fields that have their default."""
    return json.dumps(to_builtins(message), separators=(",", ":"))


def parse_event(line: bytes) -> Event:
    """Read one line that `serve` prints.

    :raises ValueError: if the line is no event
    """
    return _read(line, _events())


def parse_said(line: bytes) -> Said | None:
    """Read one line that only a conversing `serve` prints. None stands for any other line."""
    try:
        return _read(line, _said())
    except ValueError:
        return None


def job_of(line: bytes) -> str | None:
    """The job that a line names, although the line is no event. None stands for a line that names no job."""
    try:
        found = json.loads(line)
    except (RecursionError, ValueError):
        return None
    job = found.get("job") if isinstance(found, dict) else None
    return job if isinstance(job, str) else None


def with_observation(spec: JobSpec, **changes: Any) -> JobSpec:
    """The same job, with other fields of its observation."""
    return replace(spec, observation=replace(spec.observation, **changes))


def with_rehearsal(spec: JobSpec, **changes: Any) -> JobSpec:
    """The same job, with other fields of its rehearsal."""
    return replace(spec, rehearsal=replace(spec.rehearsal or RehearsalSpec(), **changes))


def identity_of(found: stat_result) -> FileIdentity:
    """The identity of a file on this node."""
    return FileIdentity(device=found.st_dev, inode=found.st_ino, size=found.st_size, mtime=found.st_mtime_ns)


def part_of(event: PartEvent) -> FilePart:
    """The part that an event announces."""
    return FilePart(file=event.path, identity=event.identity, pieces=event.pieces, digest=event.digest)


def cpu_of(usage: Usage) -> float:
    """CPU seconds of the process tree, and of `sfio-node` for it."""
    return usage.user + usage.system + usage.wrapper_cpu


def is_from_outside(event: ExitEvent) -> bool:
    """Whether the command has no part in the end of its job, as when memory has run out."""
    # A shell exits so when its command was killed.
    codes = {128 + number for number in _KILLING}
    return event.reason in ("cancelled", "driver", "lost") or event.signal in _KILLING or event.code in codes


def has_opened_again(event: ExitEvent) -> bool:
    """Whether `sfio-node` has killed the job, because a byte stream was opened twice."""
    return event.reason == "error" and "was opened again" in (event.message or "")


def is_not_apart(event: ExitEvent) -> bool:
    """Whether the job has not started, because it would not have been kept apart."""
    return event.reason == "error" and (event.message or "").startswith("it cannot be kept apart")


def is_without_gate(event: WarningEvent) -> bool:
    """Whether calls of the job are not seen, so that it gets whole files."""
    return event.message.startswith("no gate (")


def is_without_mounts(event: WarningEvent) -> bool:
    """Whether directories are not at the other paths that `mounts` names."""
    return event.message.startswith("directories cannot be put at other places")


@cache
def _events() -> Decoder[Event]:
    return Decoder(Event)


@cache
def _said() -> Decoder[Said]:
    return Decoder(Said)


def _read(line: bytes, decoder: Decoder[T]) -> T:
    """Read one line.

    :raises ValueError: if the line is none of the messages of the decoder
    """
    try:
        return decoder.decode(line)
    except ValidationError:
        raise
    except ValueError:
        # The decoder refuses lone surrogates, which are bytes that are not UTF-8.
        found: T = convert(json.loads(line), decoder.type)
        return found
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
