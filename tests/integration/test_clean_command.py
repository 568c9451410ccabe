"""`streamflow-io clean` removes what runs have left, and nothing that is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from lab import forked
from lab.cwl import Document, tool, workflow
from lab.node import wait_for
from lab.runs import Bench, kill_group, wait_for_note
from streamflow_io.records.runs import SILENT_SECONDS

SFIO: Final = Path(sys.executable).with_name("streamflow-io")
OBSERVED: Final = {"config": {"observe": True}}


def clean(bench: Bench, *arguments: str) -> dict[str, Any]:
    environment = {"XDG_DATA_HOME": str(bench.data)}
    answer = forked.run("streamflow-io", "clean", *arguments, "--json", environment=environment)
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def chain(last: str = "cat $i") -> Document:
    first = tool("head -c 3000000 /dev/zero", {}, {"o": "stdout"}, stdout="a.txt")
    second = tool(last, {"i": "File"}, {"o": "stdout"}, stdout="b.txt")
    return workflow({}, {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"i": "a/o"}}}, {"o": "b/o"})


def wait_for_second(bench: Bench, path: Path) -> None:
    """Wait until the second job runs, so that its standard error has a file, and records have both directories."""
    wait_for_note(path, " here")

    def are_recorded() -> bool:
        files = [*bench.data.glob("streamflow-io/runs/*/telemetry.jsonl")]
        return any(file.read_text().count('"directories"') >= 2 for file in files)

    wait_for(are_recorded, "the records of the second job")


def work(path: Path) -> list[Path]:
    return [*(path.parent / "tmp" / "streamflow").iterdir()]


def test_what_runs_have_left_goes_and_results_stay(bench: Bench) -> None:
    path = bench.write(chain(), {}, io=True, **OBSERVED)
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    strange = path.parent / "tmp" / "streamflow" / "mine"
    strange.mkdir()
    before = work(path)
    tried = clean(bench, "--dry-run")
    assert tried["ok"]
    assert 6_000_000 <= tried["bytes"] < 7_000_000
    assert sum(part["directories"] for part in tried["parts"]) == len(before) - 1
    assert work(path) == before
    assert clean(bench, "--older-than", "1h")["parts"] == []
    assert clean(bench)["bytes"] == tried["bytes"]
    assert work(path) == [strange]
    assert len(run.files["b.txt"]) == 3_000_000
    assert (path.parent / "out" / "b.txt").read_bytes() == run.files["b.txt"]
    assert clean(bench)["parts"] == []


def test_a_failed_run_leaves_nothing_either(bench: Bench) -> None:
    path = bench.write(chain("touch $(dirname $i)/locked; chmod a-w .; exit 3"), {}, io=True, **OBSERVED)
    assert not bench.finish(bench.start(path), path).ok
    assert work(path)
    assert clean(bench)["ok"]
    assert work(path) == []


def test_a_run_that_goes_on_is_left_alone(bench: Bench) -> None:
    path = bench.write(
        chain('note here; while test ! -e "$TRACE.go"; do sleep 0.05; done; cat $i'), {}, io=True, **OBSERVED
    )
    driver = bench.start(path)
    wait_for_second(bench, path)
    before = sorted(work(path))
    (part,) = clean(bench)["parts"]
    assert part["told"] == "kept: the run goes on"
    assert sorted(work(path)) == before
    path.with_name("trace.go").touch()
    run = bench.finish(driver, path)
    assert run.ok, run.errors


def test_what_a_killed_run_has_left(bench: Bench) -> None:
    """A job may go on when its driver was killed, so its directories stay."""
    path = bench.write(chain("note here; sleep 1000; cat $i"), {}, io=True, **OBSERVED)
    driver = bench.start(path)
    wait_for_second(bench, path)
    kill_group(driver)
    driver.wait(30)
    parts = {part["told"]: part for part in clean(bench)["parts"]}
    assert parts["removed"]["bytes"] >= 3_000_000
    (kept,) = [told for told in parts if told != "removed"]
    assert "may still run" in kept
    assert len([each for each in work(path) if each.is_dir()]) == parts[kept]["directories"]
    # The job of this test has ended with its driver: as after a long time, its files may go, too.
    errors = [each for each in work(path) if not each.is_dir()]
    assert [each.suffix for each in errors] == [".streamflow-io-stderr"]
    (file,) = bench.data.glob("streamflow-io/runs/*/telemetry.jsonl")
    errors[0].write_bytes(bytes(2_000_000))
    # A run has no end before its beginning.
    first, *others = file.read_text().splitlines(keepends=True)
    old = json.dumps(json.loads(first) | {"time": time.time() - SILENT_SECONDS - 60}) + "\n"
    file.write_text("".join([old, *others]))
    os.utime(file, (file.stat().st_atime, time.time() - SILENT_SECONDS - 1))
    (part,) = clean(bench)["parts"]
    assert part["told"] == "removed"
    assert part["bytes"] >= 2_000_000
    assert work(path) == []


def test_a_table_is_readable(bench: Bench) -> None:
    path = bench.write(chain(), {}, io=True, **OBSERVED)
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    environment = {"XDG_DATA_HOME": str(bench.data), "COLUMNS": "80"}
    first, again = (forked.run("streamflow-io", "clean", environment=environment) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert "directories" in first.stdout
    assert "removed" in first.stdout.splitlines()[-1]
    assert again.stdout == "Nothing is left of 1 run\n"


def test_mistakes_are_explained(bench: Bench) -> None:
    """The command is the installed program itself: no other test in `make test` starts that one."""
    environment = {**os.environ, "XDG_DATA_HOME": str(bench.data)}
    words = [SFIO, "clean", "nothing", "--json"]
    answer = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert answer.stdout, answer.stderr
    assert "there is no run" in json.loads(answer.stdout)["errors"][0]["message"]
