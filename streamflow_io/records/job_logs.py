"""Where the standard error of jobs is kept in the record of a run, and how much of it. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from dataclasses import dataclass

from .runs import LOGS_DIRECTORY

#: So many bytes of the beginning are kept of what is longer than both together, and so many of the end.
HEAD, TAIL = 16384, 49152
#: So many bytes are kept in a run; beyond that, only those of jobs that fail.
MOST_KEPT = 64_000_000
_LONGEST_COMMAND = 16384
_LONGEST_NAME = 150
# How StreamFlow hides a command from the shell that starts it.
_HIDDEN = re.compile(r"\$\(echo ([A-Za-z0-9+/=]*) \| base64 -d\)")


@dataclass(frozen=True)
class KeptOutput:
    """What a command has written.

    :ivar kept: all of it, or its first :data:`HEAD` and its last :data:`TAIL` bytes
    :ivar size: bytes that there were
    """

    kept: bytes = b""
    size: int = 0

    @property
    def cut(self) -> int | None:
        """So many bytes are kept of the beginning; None: all is kept."""
        return HEAD if self.size > len(self.kept) else None


def bounded(content: bytes) -> KeptOutput:
    """A part of what was written that is no larger than may be kept."""
    size = len(content)
    return KeptOutput(content if size <= HEAD + TAIL else content[:HEAD] + content[-TAIL:], size)


def log_file(job: str, attempt: int) -> str:
    """The file with the standard error of an attempt, relative to the directory of the run.

    :param job: as `/step/0.1`
    """
    parts = [_file_name(part) for part in job.split("/") if part]
    return "/".join((LOGS_DIRECTORY, *parts, "stderr" if attempt == 1 else f"stderr-{attempt}"))


def command_text(words: list[str], stdin: str | None, stdout: str | None, stderr: str | None) -> str:
    """A command line as people read it, with its redirections.

    :param words: as StreamFlow gives them to a shell
    """
    text = _HIDDEN.sub(_shown, " ".join(words))
    for sign, path in (("<", stdin), (">", stdout), ("2>", stderr)):
        text += "" if path is None else f" {sign} {shlex.quote(path)}"
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."


def _shown(hidden: re.Match[str]) -> str:
    return base64.b64decode(hidden[1]).decode(errors="replace")


def _file_name(name: str) -> str:
    made = re.sub(r"[\x00-\x1f\x7f]", "_", name)
    if made == name and name not in (".", "..") and len(name.encode(errors="replace")) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{made[:30].replace('.', '_')}-{digest}"
