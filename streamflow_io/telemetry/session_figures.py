"""Figures about read sessions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from .drawing import MOST, TIME, Figure, Line, how_many_are_shown, of_run
from .numbers import MB
from .results import RunResult
from .session_results import SessionResult


def session_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Two for each of the sessions of each run that read most."""
    figures = []
    for run in runs:
        read = [session for session in run.sessions if session.storage_bytes + session.cached_bytes]
        shown = sorted(read, key=lambda one: -(one.storage_bytes + one.cached_bytes))[:MOST]
        for session in sorted(shown, key=lambda one: one.session):
            figures += _session(session, len(read), of_run(run.run, len(runs)))
    return figures


def _session(session: SessionResult, sessions: int, of: str) -> list[Figure]:
    arrived = [(point.time, point.arrived / MB) for point in session.over_time]
    consumed = [(point.time, point.consumed / MB) for point in session.over_time]
    name = f"{PurePath(session.file).name}, {session.step}{of}"
    window = Figure(
        f"Read session {session.session}: {name}",
        "The bytes that had arrived in the page cache, and those of them whose jobs had ended. Between them is what "
        f"the window holds, {session.window / MB:,.0f} MB and one chunk at most."
        f"{how_many_are_shown(sessions, 'sessions')}",
        TIME,
        "bytes (MB)",
        lines=[Line("arrived", arrived, 0, area=0.15), Line("consumed", consumed, 1)],
    )
    readers = Figure(
        f"Readers of read session {session.session}: {name}",
        f"How many chunks were read at a time, {session.readers} at most.",
        TIME,
        "chunks",
        lines=[Line("readers at work", session.readers_over_time, 2)],
        until=max((time for time, _ in arrived), default=0.0),
    )
    return [window, readers]
