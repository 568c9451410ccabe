"""The cost of an event of a byte stream that is kept to what is required, for the driver, beside hundreds of others."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path, PurePosixPath

from streamflow.core.workflow import Job

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.bandwidth.learned_windows import RememberedWindows
from streamflow_io.bandwidth.stream_rates import StreamRates
from streamflow_io.runtime.wire import parse_event

STREAMS = 500
BURSTS = 10
_BURST_BYTES = 50_000_000
_EVERY = 10.0


def milliseconds_per_event() -> float:
    """CPU time for one: it is read, and what follows for rates is found, and told; a commit of another file at each."""
    return asyncio.run(_measure())


async def _measure() -> float:
    names = [f"/{step}/0.{number}" for step in "ab" for number in range(STREAMS)]
    jobs = {name: JobState(Job(name, 0, {}, None, None, None)) for name in names}
    rates = StreamRates(True, RememberedWindows(Path(), {}, {}), jobs.get, lambda _: None)
    for number in range(STREAMS):
        source = StreamSource(f"/a/0.{number}", "out", "out.bin", bandwidth="required")
        token = StreamToken(file_value(f"/b/{number}/out.bin"), source)
        attempt = Attempt(PurePosixPath(f"/a/{number}"))
        rates.opened(jobs[f"/b/0.{number}"], {"file": token}, {"0": (token, attempt)})
    lines = [line for burst in range(BURSTS) for number in range(STREAMS) for line in _lines(number, burst)]
    begin = time.process_time()
    for job, line in lines:
        rates.event(jobs[job], parse_event(line))
    seconds = time.process_time() - begin
    await rates.run_closed()
    return 1e3 * seconds / len(lines)


def _lines(number: int, burst: int) -> list[tuple[str, bytes]]:
    """The lines about a burst that is over, a reader that has got it, and another file that is committed; by jobs."""
    now, end = time.time(), (burst + 1) * _BURST_BYTES
    begin = now - _EVERY * (BURSTS - burst)
    source, path = f"/a/0.{number}", f"/a/{number}/out.bin"
    events = (
        (source, {"event": "phase", "port": "out", "path": path, "number": burst, "start": begin, "last": begin + 1}),
        (f"/b/0.{number}", {"event": "drained", "name": "0", "last": begin + 2}),
        (source, {"event": "committed", "port": "parts", "path": f"/a/{number}/part{burst}", "size": 1}),
    )
    more: tuple[dict[str, object], ...] = ({"bytes": _BURST_BYTES, "end": end}, {"bytes": end}, {})
    return [
        (job, json.dumps({"job": "000001", "time": now, **event, **added}).encode())
        for (job, event), added in zip(events, more, strict=True)
    ]
