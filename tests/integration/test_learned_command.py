"""`streamflow-io learned`, on a real file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from streamflow_io.bandwidth.expectations import Learned
from streamflow_io.bandwidth.rates import LearnedWindow
from streamflow_io.cli import main
from streamflow_io.records.learned.database import LearnedDatabase, LearnedEntry, SizeKey, default_path, known_entries
from streamflow_io.records.learned.extents import Extent
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, Proof, ProofKey
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.storage.learned_limits import LearnedLimit

REGISTRY = ConstraintRegistry((RegisteredConstraint(28.125, 10.3, 16, 14),), 290e6)
ALIGN, ALIGN_LARGE, SORT = (SizeKey("a1", "scratch", 0), SizeKey("a1", "scratch", 9), SizeKey("b2", "ssd", 0))


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return default_path()


def save(file: Path, *entries: LearnedEntry) -> None:
    LearnedDatabase(file).save(entries)


@pytest.fixture
def learned(file: Path) -> Path:
    limits = [
        LearnedLimit(key, step, 1_700_000_000, key.storage, 16, REGISTRY, int(key == SORT))
        for key, step in ((ALIGN, "/align"), (ALIGN_LARGE, "/align"), (SORT, "/sort"))
    ]
    save(file, *limits)
    return file


def keys_left(capsys: pytest.CaptureFixture[str]) -> set[str]:
    return {limit["key"] for limit in answer(capsys, "list")["learned"]}


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """Return what the command prints for programs."""
    capsys.readouterr()
    assert main(["learned", *arguments, "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["ok"] is (code == 0)
    return result


def test_before_anything_is_learned(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = "learned", "windows", "sizes", "splits", "streams", "inconclusive"
    nothing: dict[str, Any] = {kind: [] for kind in none}
    assert answer(capsys, "list") == {"ok": True, "file": str(file), **nothing}
    assert answer(capsys, "forget", "--all") == {"ok": True, "forgotten": []}
    for arguments in (["show", "abcdef0"], ["forget", "abcdef0"], ["forget", "--step", "/align"]):
        (error,) = answer(capsys, *arguments, code=1)["errors"]
        assert error["allowed"] == "nothing is learned yet"
    assert not file.parent.exists()


@pytest.mark.usefixtures("learned")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learned", "list"]) == 0
    table = capsys.readouterr().out
    for key in (ALIGN, ALIGN_LARGE, SORT):
        assert key.digest[:7] in table
    limits = answer(capsys, "list")["learned"]
    assert [(limit["step"], limit["inputBytes"]["from"], limit["used"]) for limit in limits] == [
        ("/align", 0, 0),
        ("/align", 2**28, 0),
        ("/sort", 0, 1),
    ]


@pytest.mark.usefixtures("learned")
def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer(capsys, "show", SORT.digest[:4])
    assert shown == {
        "ok": True,
        "key": SORT.digest,
        "step": "/sort",
        "tool": "b2",
        "storage": "ssd",
        "conditions": "ssd",
        "sizeClass": 0,
        "inputBytes": {"from": 0, "below": 2**20},
        "learned": 1_700_000_000,
        "ioExecutors": 16,
        "used": 1,
        "jobBytes": 290e6,
        "complete": True,
        "constraints": [{"storageBW": 28.125, "concurrency": 16, "seconds": 10.3, "jobs": 14}],
    }


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize("key", ["abcdef0", "", SORT.digest[:3], SORT.digest + "0"])
@pytest.mark.parametrize("command", ["show", "forget"])
def test_an_unknown_key(command: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    (error,) = answer(capsys, command, key, code=1)["errors"]
    assert repr(key) in error["message"]
    for known, step in ((ALIGN, "/align"), (SORT, "/sort")):
        assert f"{known.digest[:7]} ({step})" in error["allowed"]


@pytest.mark.usefixtures("learned")
def test_forget_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learned", "forget", ALIGN.digest[:7], SORT.digest, SORT.digest[:9]]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Forgotten: {ALIGN.digest[:7]} /align on scratch, below 1 MiB",
        f"Forgotten: {SORT.digest[:7]} /sort on ssd, below 1 MiB",
    ]
    assert keys_left(capsys) == {ALIGN_LARGE.digest}


@pytest.mark.usefixtures("learned")
def test_one_unknown_key_and_nothing_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "forget", ALIGN.digest, "abcdef0", code=1)
    assert len(keys_left(capsys)) == 3


@pytest.mark.usefixtures("learned")
def test_forget_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    (error,) = answer(capsys, "forget", "--step", "/alig", code=1)["errors"]
    assert error["allowed"] == "/align, /sort"
    forgotten = answer(capsys, "forget", "--step", "/align")["forgotten"]
    assert [limit["key"] for limit in forgotten] == [ALIGN.digest, ALIGN_LARGE.digest]
    assert keys_left(capsys) == {SORT.digest}


@pytest.mark.usefixtures("learned")
def test_forget_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(answer(capsys, "forget", "--all")["forgotten"]) == 3
    assert keys_left(capsys) == set()


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize("arguments", [[], ["--all", "--step", "/align"], ["--all", ALIGN.digest]])
def test_forget_wants_one_of_keys_all_or_step(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["learned", "forget", *arguments])
    assert exit_.value.code == 2
    assert len(keys_left(capsys)) == 3


def test_another_file(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = learned.rename(tmp_path / "elsewhere.db")
    assert keys_left(capsys) == set()
    assert len(answer(capsys, "list", "--file", str(elsewhere))["learned"]) == 3


@pytest.mark.parametrize("command", [["list"], ["show", "abcdef0"], ["forget", "--all"]])
def test_a_damaged_file(learned: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    learned.write_bytes(os.urandom(8192))
    (error,) = answer(capsys, *command, code=1)["errors"]
    assert error["file"] == str(learned)
    assert error["message"] == "it cannot be used: file is not a database"


def test_windows_of_io_tasks(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside limits, in the same file: listed, shown and forgotten like them."""
    windows = [
        LearnedWindow(SizeKey("c3", "disk: /disk (shared)", size_class), step, 1_700_000_000, Learned(5.25, ratio, 12))
        for step, size_class, ratio in (("/align", 0, None), ("/save", 6, 1.0))
    ]

    save(learned, *windows)
    listed = answer(capsys, "list")["windows"]
    assert [(one["step"], one["window"], one["ratio"], one["phases"]) for one in listed] == [
        ("/align", 5.25, None, 12),
        ("/save", 5.25, 1.0, 12),
    ]
    assert main(["learned", "list"]) == 0
    assert "5.25 s" in capsys.readouterr().out
    assert main(["learned", "show", windows[1].key.digest[:7]]) == 0
    text = capsys.readouterr().out
    assert "phases:     12" in text
    assert "ratio:      1.0" in text
    assert answer(capsys, "show", windows[0].key.digest)["ratio"] is None
    forgotten = answer(capsys, "forget", "--step", "/align")["forgotten"]
    assert {one["key"] for one in forgotten} == {ALIGN.digest, ALIGN_LARGE.digest, windows[0].key.digest}
    assert [one["step"] for one in answer(capsys, "list")["windows"]] == ["/save"]
    assert main(["learned", "forget", windows[1].key.digest]) == 0
    assert "/save, window of 5.25 s, 32 MiB to 64 MiB" in capsys.readouterr().out
    assert answer(capsys, "list")["windows"] == []


def test_what_streams_without_a_hint(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, extents = ProofKey("a1", "reads", "text", "5d"), (Extent(4000, 4000),)
    proven = Proof(key, "/count", 1_790_000_000.0, "net", bytes=4000, runs=3, extents=extents)
    refused = Proof(ProofKey("b2", "writes", "out"), "/sort", 1_790_000_000.0, reason="was written again")

    save(file, proven, refused)
    streams = answer(capsys, "list")["streams"]
    assert [(one["step"], one["port"], one["proven"], one["jobs"], one["reason"]) for one in streams] == [
        ("/count", "text", True, 3, None),
        ("/sort", "out", False, 0, "was written again"),
    ]
    assert main(["learned", "list"]) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "not streamed: was written" in table
    assert "proven up to 4.0 kB" in table
    assert main(["learned", "show", refused.key.digest]) == 0
    assert "was written again" in capsys.readouterr().out
    forgotten = answer(capsys, "forget", "--step", "/sort")["forgotten"]
    assert [one["port"] for one in forgotten] == ["out"]
    assert [one["port"] for one in answer(capsys, "list")["streams"]] == ["text"]


def test_what_has_shown_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reason = "the tool has not read the file"
    found = InconclusiveRehearsal(ProofKey("a1", "reads", "text", "5d"), "/count", 1_790_000_000.0, reason, 4000)
    save(file, found)
    [one] = answer(capsys, "list")["inconclusive"]
    assert (one["step"], one["port"], one["reason"], one["bytes"]) == ("/count", "text", reason, 4000)
    for arguments in (["list"], ["show", found.key.digest]):
        assert main(["learned", *arguments]) == 0
        assert reason in " ".join(capsys.readouterr().out.split())
    assert [one["port"] for one in answer(capsys, "forget", "--all")["forgotten"]] == ["text"]
    assert known_entries(file, InconclusiveRehearsal) == ()
