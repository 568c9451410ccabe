"""The cost of the plugin where there is nothing to gain: 200 trivial steps, and the node wrapper alone.

All variants run the same two scatters, `echo` and then `cat` on each element; the hints are in annotations files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from .model import Comparison
from .node import measure_phases, measure_wrapper
from .workflows import JSON, streamflow, tool, write_workflow
from .workload import Outcome, Variant, Workload

WIDTH = 200


def tiny_jobs(path: Path, width: int, command: Sequence[str] = ("cat",)) -> Path:
    """Write a workflow with two scatters of a width.

    :param command: of the second one
    """
    return write_workflow(
        path,
        inputs={"numbers": {"type": "int[]", "default": list(range(width))}},
        outputs={"lines": {"type": "File[]", "outputSource": "second/copy"}},
        steps={
            "first": {
                "run": tool(
                    ["echo"],
                    {"number": {"type": "int", "inputBinding": {}}},
                    {"line": "stdout"},
                    stdout="$(inputs.number).txt",
                ),
                "scatter": "number",
                "in": {"number": "numbers"},
                "out": ["line"],
            },
            "second": {
                "run": tool(
                    command,
                    {"line": "File"},
                    {"copy": "stdout"},
                    stdin="$(inputs.line.path)",
                    stdout="$(inputs.line.basename)",
                ),
                "scatter": "line",
                "in": {"line": "first/line"},
                "out": ["copy"],
            },
        },
    )


def commit_hints(path: Path) -> Path:
    """Write annotations by which the second scatter has each file when it is closed."""
    rules = {"/first": _streaming("line", committed="on_close"), "/second": _streaming("copy", committed="on_close")}
    return _annotations(path, rules, [])


def byte_stream_hints(path: Path) -> Path:
    """Write annotations by which the second scatter reads each file while it is written."""
    return _annotations(path, {"/first": _streaming("line", mode="no_update")}, ["/second/line"])


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow = tiny_jobs(directory / "overhead.cwl", WIDTH)
    commit = commit_hints(directory / "commit.yml")
    stream = byte_stream_hints(directory / "stream.yml")

    return (
        streamflow("plain", workflow),
        streamflow("no hints", workflow, {}),
        streamflow("commit hints", workflow, {"annotations": str(commit)}, deliveries=["commit"]),
        streamflow("byte streams", workflow, {"annotations": str(stream)}, deliveries=["stream"]),
        Variant("node wrapper", lambda run: Outcome(measure_wrapper(run))),
        Variant("phases told", lambda run: Outcome(measure_phases(run, are_told=True))),
        Variant("phases not told", lambda run: Outcome(measure_phases(run, are_told=False))),
    )


def _streaming(port: str, **rule: str) -> JSON:
    return [{"class": "sfio:Streaming", "rules": [{"port": port, **rule}]}]


def _annotations(path: Path, steps: Mapping[str, JSON], streamable: Sequence[str]) -> Path:
    path.write_text(json.dumps({"steps": steps, "streamable": streamable}), encoding="utf-8")
    return path


OVERHEAD = Workload(
    "overhead",
    "200 trivial steps, scattered, and 200 that read what they wrote; the node wrapper around `true`",
    _prepare,
    (
        Comparison(name="no hints / plain", variant="no hints", baseline="plain", at_most=1.03),
        Comparison(name="commit hints / plain", variant="commit hints", baseline="plain", at_most=1.15),
        Comparison(name="byte streams / plain", variant="byte streams", baseline="plain"),
        *(
            Comparison(name=f"CPU time, {name} / plain", measure="cpu_s", variant=name, baseline="plain")
            for name in ("no hints", "commit hints", "byte streams")
        ),
        Comparison(name="node wrapper, ms of CPU per job", measure="cpu_ms", variant="node wrapper", at_most=3.0),
        Comparison(name="node wrapper, MiB of memory", measure="memory_mib", variant="node wrapper", at_most=5.0),
        Comparison(name="phases told / not told", variant="phases told", baseline="phases not told", at_most=1.02),
    ),
)
