"""The gallery of the site: real runs of the templates, in plain StreamFlow and with StreamFlow-IO.

`python -m scripts.gallery [NAME ...]` writes a page, a report page and a picture of each into `build/gallery`, from
where `make docs` takes them. With `--pictures`, the pictures of `docs/gallery.md` are made anew.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.model import Machine, commit_here
from benchmarks.processes import CommandError, run
from benchmarks.templates import variants_digest
from benchmarks.workflows import RESULT, StreamFlowRun, job_times, tree_digest
from lab.templates import WORKFLOWS
from streamflow_io.records.runs import TELEMETRY_FILE

from .timelines import Span, compared

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "build" / "gallery"
PICTURES = ROOT / "docs" / "pictures"
_BIN = Path(sys.executable).parent
_STEPS = re.compile(r"\brun: *([^\s,}]+\.cwl)\b")
_ANNOTATION = re.compile(r"\bstreamable: *true\b|\bsfio:[A-Z]")


@dataclass(frozen=True)
class Example:
    """A workflow of the gallery.

    :ivar template: its directory
    :ivar file: the StreamFlow file that uses the plugin
    :ivar prepare: the command that writes the input, after `python3`
    :ivar digest: of a directory of results; equal digests mean identical results
    """

    template: str
    file: str = "streamflow-io.yml"
    prepare: Sequence[str] = ("generate.py", "demo")
    digest: Callable[[Path], str] = tree_digest

    @property
    def directory(self) -> Path:
        return WORKFLOWS / self.template

    def read(self) -> tuple[Path, Path, dict[str, Any]]:
        """Return the workflow, its job file, and the configuration of the scheduler."""
        document = YAML(typ="safe", pure=True).load(self.directory / self.file)
        (workflow,) = document["workflows"].values()
        config = workflow["config"]
        scheduler: dict[str, Any] = document["scheduling"]["scheduler"]["config"]
        return self.directory / config["file"], self.directory / config["settings"], scheduler


EXAMPLES = {
    "1000genome": Example("1000genome"),
    "variant-calling": Example("variant-calling", prepare=("prepare.py",), digest=variants_digest),
    "chunks": Example("variant-calling", "streamflow-io-chunks.yml", ("prepare.py",), variants_digest),
    "water-bodies": Example("water-bodies"),
    "hmmer": Example("hmmer", prepare=("prepare.py",)),
    "kmeans": Example("kmeans"),
}


@dataclass(frozen=True)
class Done:
    """One run of an example.

    :ivar directory: has the telemetry, but no results
    :ivar seconds: from the start of `streamflow run` to its end
    :ivar digest: of its results
    """

    directory: Path
    seconds: float
    spans: Sequence[Span]
    digest: str


class DifferentResultsError(Exception):
    """The results of a run are not those of plain StreamFlow."""


def main() -> int:
    """:return: 0 if at least one example was made; 1 if none was, or if results differ"""
    parser = argparse.ArgumentParser(prog="python -m scripts.gallery", description="Make the gallery of the site.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXAMPLES)}; all of them by default")
    parser.add_argument("--pictures", action="store_true", help="make the pictures of docs/gallery.md anew, too")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="show the fastest of N runs each (default: 1)")
    options = parser.parse_args()
    names = options.names or list(EXAMPLES)
    if unknown := [name for name in names if name not in EXAMPLES]:
        parser.error(f"unknown: {', '.join(unknown)}; allowed: {', '.join(EXAMPLES)}")
    os.environ["PATH"] = f"{_BIN}:{os.environ['PATH']}"
    made = 0
    for name in names:
        print(f"gallery: {name}", file=sys.stderr)
        shutil.rmtree(GALLERY / name, ignore_errors=True)
        try:
            make(EXAMPLES[name], GALLERY / name, options.runs)
        except CommandError as error:
            print(f"gallery: {name} is left out: {error}", file=sys.stderr)
        except DifferentResultsError:
            print(f"gallery: {name}: the results differ from those of plain StreamFlow", file=sys.stderr)
            return 1
        else:
            made += 1
            if options.pictures:
                shutil.copy(GALLERY / name / "timelines.svg", PICTURES / f"gallery-{name}.svg")
    return 0 if made else 1


def make(example: Example, target: Path, runs: int) -> None:
    """Run an example, and write what the gallery shows of it.

    :param runs: how many of each way, one after the other. Other work on the machine disturbs the fastest one least

    :raises CommandError: if a run fails, or if the input cannot be made here
    :raises DifferentResultsError: if the results differ; nothing is written then
    """
    with tempfile.TemporaryDirectory(prefix="streamflow-io-gallery-") as name:
        here = Path(name).resolve()
        for part in ("input", "page"):
            (here / part).mkdir()
        run([["python3", str(example.directory / example.prepare[0]), *example.prepare[1:]]], here / "input")
        workflow, settings, scheduler = example.read()
        machine, date = Machine.here(), datetime.now(timezone.utc)
        ways = [
            StreamFlowRun(workflow, config, settings=settings, digest=example.digest) for config in (None, scheduler)
        ]
        pairs = [[done(way, here / f"{turn}-{number}") for number, way in enumerate(ways)] for turn in range(runs)]
        if len({run.digest for pair in pairs for run in pair}) > 1:
            raise DifferentResultsError
        plain, streaming = (min(way, key=lambda run: run.seconds) for way in zip(*pairs, strict=True))
        page = here / "page"
        (telemetry,) = streaming.directory.rglob(TELEMETRY_FILE)
        report = [str(_BIN / "streamflow-io"), "report", str(telemetry.parent), "-o", str(page / "report.html")]
        run([report], here / "input")
        spans = {"plain StreamFlow": plain.spans, "StreamFlow-IO": streaming.spans}
        (page / "timelines.svg").write_text(compared(spans))
        (page / "index.md").write_text(page_of(target.name, example, runs, plain, streaming, machine, date))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(page, target)


def done(way: StreamFlowRun, directory: Path) -> Done:
    """Run StreamFlow once.

    :raises CommandError: if the run fails
    """
    directory.mkdir()
    os.sync()  # what was written before must not slow down this run
    outcome = way.run(directory)
    spans = [Span(job.step.removeprefix("/"), job.start, job.end) for job in job_times(directory)]
    shutil.rmtree(directory / RESULT)
    return Done(directory, outcome.sample.wall, spans, *outcome.outputs.values())


def page_of(
    name: str, example: Example, runs: int, plain: Done, streaming: Done, machine: Machine, date: datetime
) -> str:
    """Return the page of an example."""
    workflow, _, _ = example.read()
    document = YAML(typ="safe", pure=True).load(workflow)
    shown = "One run each" if runs == 1 else f"The fastest of {runs} runs each"
    where = f"{machine.cores} cores, load {machine.load:.1f} before"
    lines = [
        f"# {document.get('label') or document['doc']}",
        "",
        f"{shown} on {date:%d %B %Y}, commit {commit_here() or 'unknown'}: {where}. All results are identical.",
        "",
        "| | seconds |",
        "|---|---|",
        f"| plain StreamFlow | {plain.seconds:.1f} |",
        f"| StreamFlow-IO | {streaming.seconds:.1f} |",
        "",
        f"![When the jobs of each step ran, in both runs](../../pictures/gallery-{name}.svg)",
        "",
        "[Report page of the run with StreamFlow-IO](report.html)",
        "",
        "## Annotated files",
        "",
    ]
    for path in (example.directory / example.file, workflow, *annotated(workflow)):
        lines += [
            f"### {os.path.relpath(path, example.directory)}",
            "",
            "```yaml",
            path.read_text().rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def annotated(workflow: Path) -> list[Path]:
    """Return the documents that a workflow runs, also by other workflows, and that have annotations."""
    found: dict[Path, str] = {}
    left = [workflow]
    while left:
        path = left.pop(0)
        if path not in found:
            found[path] = path.read_text()
            left += [(path.parent / name).resolve() for name in _STEPS.findall(found[path])]
    return [path for path, text in found.items() if path != workflow and _ANNOTATION.search(text)]


if __name__ == "__main__":
    # As Ctrl-C does: what runs is ended, and what was written is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
