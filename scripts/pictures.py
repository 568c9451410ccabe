"""The pictures of the documentation, as SVG: of real runs of the example in the README, in a terminal and in a report.

`python -m scripts.pictures` writes them into `docs/pictures/`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.watch import FollowedRun
from streamflow_io.records.jobs import EndedRecord, StartedRecord
from streamflow_io.records.reader import read_records
from streamflow_io.report.analysis.live import LiveRun
from streamflow_io.report.live_view import screen

from .pages import blocks
from .timelines import Span, compared

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
_WIDTH = 90
# Seconds after which a run of the example is in its middle.
_MIDDLE = 3.5


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
        runs = {"plain StreamFlow": "plain", "StreamFlow-IO": "streamed"}
        spans = {title: spans_of(telemetry_of(here, name)) for title, name in runs.items()}
        (PICTURES / "plain-and-streaming.svg").write_text(compared(spans))
        subprocess.run(
            [BIN / "streamflow-io", "report", "streamed", "-o", here / "page"], check=True, stdout=subprocess.DEVNULL
        )
        (PICTURES / "report.svg").write_text(timeline_of((here / "page").read_text()))


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


def timeline_of(page: str) -> str:
    """The timeline of a report, as a file of its own with the styles of the page."""
    (style,) = re.findall("<style>.*?</style>", page, re.DOTALL)
    (patterns,) = re.findall("<defs>.*?</defs>", page, re.DOTALL)
    (begin, content) = re.findall('<svg (class="chart"[^>]*aria-label="timeline">)(.*?</svg>)', page, re.DOTALL)[0]
    return f'<svg xmlns="http://www.w3.org/2000/svg" style="background: #fff" {begin}{style}{patterns}{content}\n'


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


def spans_of(telemetry: Path) -> list[Span]:
    """The jobs of a run."""
    started = {}
    found = []
    for record in read_records(telemetry):
        if isinstance(record, StartedRecord):
            started[record.job] = record.time
        elif isinstance(record, EndedRecord) and record.job in started:
            found.append(Span(record.step, started[record.job], record.time))
    return found


if __name__ == "__main__":
    main()
