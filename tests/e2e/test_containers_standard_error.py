"""Jobs in containers that fail: what the user gets to see of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab import forked
from lab.container_sites import Containers, contained
from lab.cwl import Document, streaming, tool, workflow


def test_what_a_failed_job_has_said(docker: Containers) -> None:
    """With hints, `sfio-node` runs the job; otherwise the engine does."""
    script = "echo data; seq 30 >&2; echo 'cannot read the index' >&2; exit 7"
    streams = streaming({"port": "out", "mode": "no_update"})
    for hints in ([], [streams]):
        first = tool(script, {}, {"out": "stdout"}, hints, stdout="a.txt")
        second = tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="b.txt")
        steps: dict[str, Document] = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out"}}}
        run = docker.run(contained(workflow({}, steps, {"b": "b/out"})))
        assert not run.ok
        _, _, end = run.log.partition("FAILED Workflow execution: ")
        lines = end.splitlines()
        assert lines[0] == "job /a/0 of step /a has failed (exit code 7); not run: step /b"
        assert lines[1] == "The last lines of its standard error:"
        assert lines[2:22] == [*(f"\t{number}" for number in range(12, 31)), "\tcannot read the index"]
        attempt = last_attempt(docker)
        assert (attempt["code"], attempt["location"]) == (7, "the driver's node")
        assert attempt["text"].splitlines()[-2:] == ["30", "cannot read the index"]
        # The container is gone, and its directory is there.
        assert (Path(attempt["directory"]) / "a.txt").read_bytes() == b"data\n"


def last_attempt(bench: Containers) -> dict[str, Any]:
    words = ("logs", "last", "/a", "--json")
    done = forked.run("streamflow-io", *words, environment={"XDG_DATA_HOME": str(bench.data)})
    (job,) = json.loads(done.stdout)["jobs"]
    attempt: dict[str, Any] = job["attempts"][-1]
    return attempt
