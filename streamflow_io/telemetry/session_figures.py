"""Figures about read sessions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from .drawing import MOST, Figure, amount_axis, how_many_are_shown, line, plain, time_axis
from .numbers import MB
from .results import RunResult
from .session_results import SessionResult

_WINDOW = "rgba(0, 114, 178, 0.15)"


def session_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Of the sessions of each run that read most."""
    figures = []
    for run in runs:
        of_run = f" of {plain(run.run)}" if len(runs) > 1 else ""
        read = [session for session in run.sessions if session.storage_bytes + session.cached_bytes]
        shown = sorted(read, key=lambda one: -(one.storage_bytes + one.cached_bytes))[:MOST]
        figures += [_session(session, len(read), of_run) for session in sorted(shown, key=lambda one: one.session)]
    return figures


def _session(session: SessionResult, sessions: int, of_run: str) -> Figure:
    times = [point.time for point in session.over_time]
    consumed = line("consumed", 1, times, [point.consumed / MB for point in session.over_time], shape="hv")
    arrived = line("arrived", 0, times, [point.arrived / MB for point in session.over_time], shape="hv")
    changes, counts = zip(*session.readers_over_time, strict=True)
    readers = line("readers at work", 2, changes, counts, shape="hv")
    more = how_many_are_shown(sessions, "sessions")
    caption = (
        "Above: the bytes that had arrived in the page cache, and those of them whose jobs had ended. Between them is "
        f"what the window holds, {session.window / MB:,.0f} MB and one chunk at most. Below: how many "
        f"chunks were read at a time, {session.readers} at most.{more}"
    )
    # Two panels above each other, with one axis of time.
    layout = {
        "xaxis": time_axis() | {"anchor": "y2"},
        "yaxis": amount_axis("bytes (MB)") | {"domain": [0.34, 1]},
        "yaxis2": amount_axis("readers") | {"domain": [0, 0.24], "anchor": "x", "dtick": max(1, session.readers // 4)},
    }
    name = plain(PurePath(session.file).name)
    title = f"Read session {session.session}: {name}, {plain(session.step)}{of_run}"
    traces = [consumed, arrived | {"fill": "tonexty", "fillcolor": _WINDOW}, readers | {"yaxis": "y2"}]
    return Figure(title, caption, traces, layout)
