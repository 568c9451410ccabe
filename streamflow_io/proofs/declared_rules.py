"""What follows of a job that has read a stream because it is declared `streamable`, and runs again with the file. Pure.

The declaration is right until the contrary is known. It is refuted when a stream makes something else of the program,
each time, and the file does not: what differs from run to run, as dates do, refutes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .rehearsal_rules import Finding, Manner, Ran, shows_nothing, unknown

_VARIES = "its outputs differ from run to run"


def next_of_declared(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding:
    """How the job is to be run next, or what is found. A finding with a way and a reason says what cannot be compared.

    :param so_far: how it has gone, in order: with the file, compared with the job; then, where the paths are the same
        for all of them, with a stream, with the file, with a stream, and with the file. Each of these but the first is
        compared with a run before: the last one with the file, all others with the first stream
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return unknown(ran.said or ran.ended)
    if not ran.succeeded:
        return Finding("pipe", f"it does not run twice: {ran.said}")
    is_equal = ran.difference is None
    match [manner for manner, _ in so_far]:
        case ["file"]:
            return Finding("pipe") if is_equal else "pipe"
        case ["file", "pipe"]:
            return "twin"
        case ["file", "pipe", "twin"]:
            return Finding("pipe") if is_equal else "pipe"
        case ["file", "pipe", "twin", "pipe"]:
            return "again" if is_equal else Finding("pipe", f"{_VARIES}: {ran.difference}")
    if not is_equal:
        return Finding("pipe", f"{_VARIES}: {ran.difference}")
    return Finding(None, so_far[2][1].difference)


def next_short_of_declared(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding | None:
    """The same with a short file: how it is to be run next, or why the declaration is refuted; None: it is not.

    :param so_far: how it has gone, in order: with the file, with a stream, with the file, and with a stream; all are
        compared with the first one
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return None
    is_file = manner == "file"
    if len(so_far) == 4:
        return None if ran.is_equal else _refuted(ran)
    if is_file:
        return "pipe" if ran.is_equal else None  # Many formats have an end, which is cut off.
    return None if ran.is_equal else "file"


def _refuted(ran: Ran) -> Finding:
    return Finding(None, ran.difference if ran.succeeded else f"{ran.said} when it reads a short stream")
