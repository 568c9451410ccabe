"""The pictures of the documentation: of real runs of the example in the README, with the terminal as SVG, pages as PNG.

`python -m scripts.pictures` writes them into `docs/pictures/`. Pages need Debian's chromium, and are left out without.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console, RenderableType
from rich.text import Text

from lab.browser import CHROMIUM, opened
from streamflow_io.commands.plan import plan_file
from streamflow_io.records.jobs import EndedRecord, StartedRecord
from streamflow_io.records.reader import read_records
from streamflow_io.report.analysis.live import LiveRun
from streamflow_io.report.following import FollowedRun
from streamflow_io.report.live_view import screen

from .pages import blocks

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
_WIDTH = 90
# Seconds after which a run of the example is in its middle.
_MIDDLE = 3.5
# The pictures that are told apart by colours have words beside them.
_COLOURS = ("#0072b2", "#e69f00")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="streamflow-io-pictures-") as directory:
        here = Path(directory)
        os.environ["XDG_DATA_HOME"] = directory
        write_example(here)
        streamable = (here / "workflow.cwl").read_text()
        (here / "workflow.cwl").write_text(streamable.replace(", streamable: true", ""))
        save("plan-without-hints", "streamflow-io plan streamflow.yml", shown_plan(here))
        (here / "workflow.cwl").write_text(streamable)
        save("plan-streams", "streamflow-io plan streamflow.yml", shown_plan(here))
        off = (here / "streamflow.yml").read_text().replace("config: {}}", "config: {runtime: off}}")
        (here / "plain.yml").write_text(off)
        run(here, "plain", "plain.yml")
        view, said = watched_run(here, "streamed")
        save("watch", "streamflow-io watch", view)
        save("end-of-run", "streamflow run streamflow.yml", Text(ending_of(said)))
        spans = {name: spans_of(telemetry_of(here, name)) for name in ("plain", "streamed")}
        (PICTURES / "plain-and-streaming.svg").write_text(compared(spans))
        if CHROMIUM is None:
            print("No chromium: the pictures of pages are as before")
        else:
            picture_of_report(here)
            picture_of_watch(here)


def write_example(directory: Path) -> None:
    """The files of the example in the README."""
    texts = [block.text for block in blocks((ROOT / "README.md").read_text()) if block.language == "yaml"]
    for name, begin in (("workflow.cwl", "cwlVersion:"), ("streamflow.yml", "version:")):
        (text,) = [text for text in texts if text.startswith(begin)]
        (directory / name).write_text(text)


def shown_plan(directory: Path) -> Text:
    console = Console(width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    plan_file(directory / "streamflow.yml").show(console)
    assert isinstance(console.file, io.StringIO)
    return Text.from_ansi(console.file.getvalue())


def run(directory: Path, name: str, file: str) -> str:
    """Return what a run has said."""
    process = start(directory, name, file)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return said


def start(directory: Path, name: str, file: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "streamflow", "run", "--name", name, "--outdir", name, file],
        cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def watched_run(directory: Path, name: str) -> tuple[RenderableType, str]:
    """A run as it is seen in its middle, and what it has said."""
    process = start(directory, name, "streamflow.yml")
    file = telemetry_of(directory, name)
    while not (file.exists() and file.stat().st_size):
        time.sleep(0.1)
    following = FollowedRun(file, LiveRun(name))
    while True:
        following.look()
        view = following.view(time.time())
        if view.streams and view.seconds > _MIDDLE:
            break
        assert process.poll() is None, "it has ended before anything was to be seen"
        time.sleep(0.1)
    shown = screen(view, 24)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return shown, said


def telemetry_of(directory: Path, name: str) -> Path:
    return directory / "streamflow-io" / "runs" / name / "telemetry.jsonl"


def picture_of_report(directory: Path) -> None:
    file = directory / "report.html"
    subprocess.run([BIN / "streamflow-io", "report", "streamed", "-o", file], check=True, stdout=subprocess.DEVNULL)
    asyncio.run(screenshot(file.as_uri(), "/add", 0, "report.png", (1000, 1000), is_whole=False))


def picture_of_watch(directory: Path) -> None:
    """The page of a run in its middle."""
    command = [str(BIN / "streamflow-io"), "watch", "--web"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            while not (address := re.search(r"http://\S+", watching.stdout.readline())):
                assert watching.poll() is None
            process = start(directory, "shown", "streamflow.yml")
            asyncio.run(screenshot(address[0], "/values", _MIDDLE, "watch-web.png", (900, 500)))
            process.communicate()
        finally:
            watching.terminate()


async def screenshot(
    address: str, words: str, seconds: float, name: str, size: tuple[int, int], is_whole: bool = True
) -> None:
    """A picture of a page.

    :param words: which are to be read on it before
    :param seconds: that are waited then
    :param is_whole: also what is below the window
    """
    async with opened(address, *size) as page:
        await page.wait_for(words)
        await asyncio.sleep(seconds)
        await page.screenshot(PICTURES / name, None if is_whole else size)


def ending_of(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    (begin,) = [number for number, line in enumerate(lines) if "This run has taken" in line]
    # When, and where, was at another place.
    told = (re.sub(r"^\S+ \S+ INFO\s+", "", line) for line in lines[begin:])
    return "\n".join(re.sub(r"/\S+(?=/streamflow-io/runs/)", "~/.local/share", line) for line in told)


def save(name: str, title: str, shown: RenderableType) -> None:
    """A picture of a terminal. Nothing in it is loaded from elsewhere."""
    console = Console(width=_WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    svg = console.export_svg(title=title, unique_id=name)
    (PICTURES / f"{name}.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


@dataclass(frozen=True)
class Span:
    """When a job ran, in seconds since the first one was started."""

    step: str
    began: float
    ended: float


def spans_of(telemetry: Path) -> list[Span]:
    """The jobs of a run."""
    started = {}
    found = []
    for record in read_records(telemetry):
        if isinstance(record, StartedRecord):
            started[record.job] = record.time
        elif isinstance(record, EndedRecord) and record.job in started:
            found.append(Span(record.step, started[record.job], record.time))
    first = min(span.began for span in found)
    return [Span(span.step, span.began - first, span.ended - first) for span in found]


def compared(runs: Mapping[str, Sequence[Span]]) -> str:
    """Runs below each other, on one axis."""
    titles = {"plain": "plain StreamFlow", "streamed": "StreamFlow-IO"}
    last = max(span.ended for spans in runs.values() for span in spans)
    left, width, row = 170, 560, 26
    parts: list[str] = []
    y = 34
    for name, spans in runs.items():
        end = max(span.ended for span in spans)
        parts.append(f'<text x="16" y="{y}" class="title">{titles[name]}: {end:.1f} s</text>')
        y += 12
        for number, span in enumerate(sorted(spans, key=lambda span: span.began)):
            x, wide = left + width * span.began / last, width * (span.ended - span.began) / last
            parts.append(f'<text x="{left - 12}" y="{y + 17}" text-anchor="end">{escape(span.step)}</text>')
            place = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{row - 6}"'
            parts.append(f'<rect {place} rx="3" fill="{_COLOURS[number % 2]}"/>')
            y += row
        y += 30
    ticks = "".join(_ticks(last, left, width, y - 26))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {y}" role="img" aria-label="Timeline of both runs">'
        "<style>text{font:14px sans-serif;fill:#57606a}.title{font-weight:bold}line{stroke:#8c959f}</style>"
        f"{''.join(parts)}{ticks}</svg>\n"
    )


def _ticks(last: float, left: int, width: int, y: int) -> Iterator[str]:
    yield f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}"/>'
    for second in range(0, int(last) + 1, 2):
        x = left + width * second / last
        yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}"/>'
        yield f'<text x="{x:.1f}" y="{y + 20}" text-anchor="middle">{second} s</text>'


if __name__ == "__main__":
    main()
