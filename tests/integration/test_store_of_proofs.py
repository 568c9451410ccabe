"""A store of proofs that cannot be used, or that two runs use at once: a plain run, and one warning."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, tool, workflow
from lab.disks import disk_of_a_test, fill
from lab.runs import Bench, Run
from streamflow_io.records.learned.database import VERSION
from streamflow_io.records.learned.proofs import known_proofs
from tests.integration.test_learned_streams import AUTO, Proving, chain, producer, reader

Damage = Callable[[Path], AbstractContextManager[bytes]]


@contextlib.contextmanager
def newer(path: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    yield path.read_bytes()


@contextlib.contextmanager
def corrupt(path: Path) -> Iterator[bytes]:
    path.write_bytes(path.read_bytes()[:100] + b"no page" * 2000)
    yield path.read_bytes()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        # Whoever opens it in this process would end the lock by closing it.
        yield content


def warnings(run: Run) -> list[str]:
    return [line.partition(" WARNING ")[2].strip() for line in run.log.splitlines() if " WARNING " in line]


@pytest.mark.parametrize(
    "damage", [*(pytest.param(damage, marks=pytest.mark.long) for damage in (newer, locked)), corrupt]
)
def test_what_cannot_be_read_is_as_if_nothing_was_known(bench: Bench, damage: Damage) -> None:
    proving = Proving(bench)
    path = bench.write(chain(producer(), reader()), {}, io=True, config={**AUTO, "rehearse": "wait"})
    proving.prove(path, {("/b", "file"): "net"})
    with damage(proving.store) as before:
        ours = bench.finish(bench.start(path), path)
        assert ours.ok, ours.errors
    assert proving.store.read_bytes() == before
    assert ours.time("read") > ours.time("end")
    [warning] = warnings(ours)
    assert warning.startswith("What earlier runs have proven to stream is not known, and nothing is learned now: ")
    assert str(proving.store) in warning


def counting() -> Document:
    """A workflow whose readers are rehearsed, one after the other."""
    made = tool("seq 30000", {}, {"out": "stdout"}, stdout="made.txt")
    steps: dict[str, Document] = {"make": {"run": made, "in": {}}}
    for name in ("sum", "cat"):
        count = tool(f'{name} < "$file"', {"file": "File"}, {"out": "stdout"}, stdout=f"{name}.txt")
        steps[name] = {"run": count, "in": {"file": "make/out"}}
    return workflow({}, steps, {name: f"{name}/out" for name in ("sum", "cat")})


def learning(bench: Bench, store: Path) -> Path:
    config: dict[str, Any] = {"streaming": "auto", "rehearse": "wait", "learned": str(store)}
    return bench.write(counting(), {"trace": "/dev/null"}, io=True, config=config)


@pytest.mark.parametrize("is_full", [True, pytest.param(False, marks=pytest.mark.long)], ids=["full", "read-only"])
def test_what_cannot_be_kept_is_said_once(bench: Bench, is_full: bool) -> None:
    disk = bench.directory / "disk"
    path = learning(bench, disk / "learned.db")
    with disk_of_a_test(disk, 2**16):
        if is_full:
            fill(disk / "filler")
        else:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        ours = bench.finish(bench.start(path), path)
    assert ours.ok, ours.errors
    assert "The run waits for 2 rehearsals of inputs that may stream" in ours.log
    [warning] = warnings(ours)
    assert warning.startswith("What streams without a hint is not remembered in this run: ")
    assert bench.leftovers() == []


def test_two_runs_learn_the_same_at_once(bench: Bench) -> None:
    store = bench.directory / "learned.db"
    runs = bench.run_all([learning(bench, store) for _ in range(2)])
    for run in runs:
        assert run.ok, run.errors
        assert warnings(run) == []
    assert runs[0].results == runs[1].results
    assert sorted((proof.step, proof.way) for proof in known_proofs(store)) == [("/cat", "net"), ("/sum", "net")]
    assert bench.leftovers() == []
