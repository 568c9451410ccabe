"""Runs of one user that have one database of StreamFlow, as they do by default."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import streamflow.persistence

from lab.cwl import Document, tool, workflow
from lab.runs import Bench, kill_group
from streamflow_io.commands.plan import plan_file
from streamflow_io.engine.database_messages import WHAT_TO_DO


def waiting(first: Path, second: Path) -> Document:
    """A workflow whose job makes a file, and ends when there is another one."""
    job = tool(f"touch {first}; until [ -e {second} ]; do sleep 0.01; done; echo ended", {}, {"said": "stdout"})
    return workflow({}, {"wait": {"run": job, "in": {}}}, {"said": "wait/said"})


def database(file: Path, **config: Any) -> Document:
    return {"type": "default", "config": {"connection": str(file), **config}}


def test_two_runs_at_the_same_time_keep_each_other_from_nothing(tmp_path: Path) -> None:
    """Each ends only if the other goes on meanwhile; neither has found a database that was there."""
    bench, made = Bench(tmp_path), (tmp_path / "a", tmp_path / "b")
    shared = database(tmp_path / "shared.db", timeout=2)
    paths = [bench.write(waiting(*order), {}, io=True, database=shared) for order in (made, made[::-1])]
    runs = bench.run_all(paths)
    assert all(run.ok for run in runs), [run.errors for run in runs]
    with closing(sqlite3.connect(tmp_path / "shared.db")) as looked:
        rows = looked.execute(
            "SELECT workflow.status, execution.status, execution.cmd FROM workflow"
            " JOIN step ON step.workflow = workflow.id JOIN execution ON execution.step = step.id"
        ).fetchall()
    assert len(rows) == 2
    assert len({(status, of_job) for status, of_job, _ in rows}) == 1
    assert {str(file) in command for file in made for *_, command in rows} == {True}


@contextmanager
def held(file: Path) -> Iterator[sqlite3.Connection]:
    """A run of plain StreamFlow, which holds its database to its end."""
    schema = files(streamflow.persistence).joinpath("schemas").joinpath("sqlite.sql").read_text()
    with closing(sqlite3.connect(file)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        plain.executescript(schema)
        plain.execute("INSERT INTO workflow(name) VALUES('plain')")
        yield plain


def test_a_run_that_waits_for_a_database_says_so(tmp_path: Path) -> None:
    bench, file = Bench(tmp_path), tmp_path / "shared.db"
    path = bench.write(waiting(tmp_path / "a", tmp_path / "a"), {}, io=True, database=database(file))
    assert plan_file(path).locked is None
    assert not file.exists()
    with held(file) as plain:
        shown = plan_file(path)
        assert (shown.locked, shown.to_json()["locked"]) == (str(file), str(file))
        process = bench.start(path)
        try:
            while "waits for StreamFlow's database" not in (log := (path.parent / "stderr").read_text()):
                assert process.poll() is None, log
                time.sleep(0.02)
        except BaseException:
            kill_group(process)
            raise
        plain.commit()
        run = bench.finish(process, path)
    assert run.ok, run.errors
    assert run.log.count(WHAT_TO_DO) == 1


def test_a_run_that_gives_up_says_it_once(tmp_path: Path) -> None:
    bench, file = Bench(tmp_path), tmp_path / "shared.db"
    path = bench.write(waiting(tmp_path / "a", tmp_path / "a"), {}, io=True, database=database(file, timeout=0))
    with held(file):
        run = bench.finish(bench.start(path), path)
    assert not run.ok
    assert run.log.count("is locked") == run.log.count(WHAT_TO_DO) == 1, run.log
