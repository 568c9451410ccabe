"""One step that delivers files one after the other, and a scatter over them: how early the files are worked on.

A stands for an instrument or a download: it delivers a file each 50 ms, and waits in between. So it asks for no core of
its own (StreamFlow rounds fractions of a core up). B uses 0.1 s of CPU for each file (the start of its interpreter
included), on all cores. With plain StreamFlow B waits for all of A. Once more with an A that asks for a core, as tools
that say nothing do: the core is lent to B, unless that is not wanted.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from .model import Comparison
from .tools import MEBIBYTE
from .workflows import TOOL, run_bash, streamflow, tool, write_workflow
from .workload import Variant, Workload

FILES = 200
FILE_BYTES = MEBIBYTE
INTERVAL_SECONDS = 0.05
WORK_SECONDS = 0.1
SOURCE_CORES = 0

_LENT, _NOT_LENT = "streaming, A has a core", "streaming, A has a core, not lent"

_SOURCE = [*TOOL, "fanout-source", str(FILES), str(FILE_BYTES), str(INTERVAL_SECONDS)]
_SUM = [*TOOL, "fanout-sum"]

_INOTIFY = f"""
mkdir parts sums
mkfifo closed
exec 3<> closed
inotifywait --monitor --event close_write --format %f parts >&3 2> watch.log &
watch=$!
trap 'kill $watch' EXIT
until grep -q established watch.log; do sleep 0.01; done
(cd parts && exec {shlex.join(_SOURCE)}) &
source=$!
sum='{shlex.join(_SUM)} "parts/$1" {WORK_SECONDS} > "sums/$1"'
sed --unbuffered {FILES}q <&3 | xargs -P "$1" -I '{{}}' sh -c "$sum" sum '{{}}'
wait $source
cat sums/*.part > result/sums.txt
"""


def _workflow(path: Path, source_cores: int) -> Path:
    return write_workflow(
        path,
        inputs={},
        outputs={"sums": {"type": "File", "outputSource": "c/gathered"}},
        steps={
            "a": {
                "run": tool(
                    _SOURCE,
                    {},
                    {"parts": {"type": "File[]", "outputBinding": {"glob": "*.part"}}},
                    cores=source_cores,
                    hints=[{"class": "sfio:Streaming", "rules": [{"port": "parts", "committed": "on_close"}]}],
                ),
                "in": {},
                "out": ["parts"],
            },
            "b": {
                "run": tool(
                    _SUM,
                    {"part": {"type": "File", "inputBinding": {"position": 1}}},
                    {"sum": "stdout"},
                    arguments=[{"valueFrom": str(WORK_SECONDS), "position": 2}],
                    stdout="$(inputs.part.basename).sum",
                ),
                "scatter": "part",
                "in": {"part": "a/parts"},
                "out": ["sum"],
            },
            "c": {
                "run": tool(
                    ["cat"],
                    {"sums": {"type": "File[]", "inputBinding": {}}},
                    {"gathered": "stdout"},
                    stdout="sums.txt",
                ),
                "in": {"sums": "b/sum"},
                "out": ["gathered"],
            },
        },
    )


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow = _workflow(directory / "fanout.cwl", SOURCE_CORES)
    with_core = _workflow(directory / "with-core.cwl", 1)
    cores = str(len(os.sched_getaffinity(0)))
    missing = None if shutil.which("inotifywait") else "inotifywait is missing (Debian: inotify-tools)"
    return (
        Variant("bash inotify", lambda run: run_bash(run, _INOTIFY, [cores]), skipped=missing),
        streamflow("plain", workflow),
        streamflow("streaming", workflow, {}, deliveries=["commit"]),
        streamflow(_LENT, with_core, {}, deliveries=["commit"]),
        streamflow(_NOT_LENT, with_core, {"oversubscribe": "gangs"}, deliveries=["commit"]),
    )


FANOUT = Workload(
    "fanout",
    "A writes 200 files of 1 MiB, one each 50 ms; B works 0.1 s per file (scatter); C gathers",
    _prepare,
    (
        Comparison(name="streaming / plain", variant="streaming", baseline="plain", at_most=0.65),
        Comparison(name="A has a core that is lent / plain", variant=_LENT, baseline="plain", at_most=0.65),
        Comparison(name="A has a core / plain", variant=_NOT_LENT, baseline="plain"),
        Comparison(
            name="execution window, streaming / bash inotify",
            measure="window",
            variant="streaming",
            baseline="bash inotify",
        ),
        Comparison(name="bash inotify / plain", variant="bash inotify", baseline="plain"),
    ),
)
