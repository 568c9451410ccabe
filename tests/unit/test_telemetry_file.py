"""The telemetry file: written, read, found, and described by its schema."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from lab.node import wait_for
from lab.telemetry import BEGIN, learning_run, usage, write
from streamflow_io.hints.errors import HintErrors
from streamflow_io.records import runs, schema
from streamflow_io.records.jobs import EndedRecord
from streamflow_io.records.reader import read_records
from streamflow_io.records.records import EndRecord, Record, RunRecord, record_decoder
from streamflow_io.records.runs import create_run_directory, end_record, find_run, run_label, runs_directory
from streamflow_io.records.writer import TelemetryWriter, to_json

RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl")
# The most bytes of the end of a run.
_END = 60


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


# Writing


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file, records = tmp_path / "new" / "a.jsonl", list(learning_run())
    with TelemetryWriter(lambda: file) as writer:
        assert not file.exists()
        for record in records:
            writer.write(record)
    assert list(read_records(file)) == records
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_records_are_on_disk_before_the_end(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with TelemetryWriter(lambda: file, interval=0.01) as writer:
        writer.write(RUN)
        deadline = time.monotonic() + 30
        while not (file.exists() and file.read_text().endswith("\n")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert list(read_records(file)) == [RUN]


def test_nothing_written_no_file(tmp_path: Path) -> None:
    # Of other tests.
    threads = set(threading.enumerate())
    writer = TelemetryWriter(lambda: tmp_path / "a.jsonl")
    writer.close()
    writer.close()
    writer.write(RUN)
    assert not list(tmp_path.iterdir())
    assert "telemetry" not in {thread.name for thread in set(threading.enumerate()) - threads}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_ends_telemetry_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    warnings: list[str] = []

    class Disk(io.FileIO):
        def write(self, _data: object) -> int:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr("streamflow_io.records.writer._create", lambda path: Disk(path, "xb"))
    monkeypatch.setattr("streamflow_io.records.writer.logger.warning", warnings.append)
    _write_until_it_gives_up(TelemetryWriter(lambda: tmp_path / "a.jsonl", interval=0.0))
    assert len(warnings) == 1
    assert os.strerror(number) in warnings[0]
    assert "the run goes on" in warnings[0]


@given(room=st.integers(0, 3000))
def test_a_run_does_not_look_killed_because_a_full_disk_has_ended_its_telemetry(room: int) -> None:
    """`clean` removes what killed runs have left, also what their results link to. The file gets no further byte."""

    class Disk(io.FileIO):
        def write(self, data: Any) -> int:
            if (left := room - self.tell()) <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(memoryview(data)[:left])

    records = [*learning_run()]
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        file = Path(directory, "a.jsonl")
        patch.setattr("streamflow_io.records.writer._create", lambda path: Disk(path, "xb"))
        patch.setattr("streamflow_io.records.writer.logger.warning", lambda _: None)
        with TelemetryWriter(lambda: file, interval=0.0) as writer:
            for record in records:
                writer.write(record)
        assert file.stat().st_size <= room
        with file.open("rb") as stream:
            is_ended = end_record(stream) is not None
        # Without its beginning, a run is not listed.
        assert is_ended or room < len(to_json(records[0])) + _END
        if is_ended:
            *others, last = read_records(file)
            assert others == records[: len(others)]
            assert last == EndRecord(last.time)


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("mine")
    _write_until_it_gives_up(TelemetryWriter(lambda: file, interval=0.0))
    assert file.read_text() == "mine"


def test_the_time_of_the_file_changes_while_nothing_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    with TelemetryWriter(lambda: file, interval=0.0, beat=0.01) as writer:
        writer.write(RUN)
        wait_for(lambda: file.exists() and file.stat().st_size > 0, "the first record")
        for _ in range(2):
            os.utime(file, (BEGIN, BEGIN))
            wait_for(lambda: file.stat().st_mtime > BEGIN, "a newer time")
    assert list(read_records(file)) == [RUN]


def test_no_directory_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    _write_until_it_gives_up(TelemetryWriter(lambda: create_run_directory("a") / "telemetry.jsonl", interval=0.0))


def _write_until_it_gives_up(writer: TelemetryWriter) -> None:
    for _ in range(100):
        writer.write(RUN)
    thread = writer._thread
    if thread is not None:
        thread.join(30)
        assert not thread.is_alive()
    for _ in range(100):
        writer.write(RUN)
    writer.close()


def test_a_field_without_a_value_is_left_out() -> None:
    record = EndedRecord(time=1.0, job="/a/0", step="/a", status="completed", usage=usage(0, 1))
    line = json.loads(to_json(record))
    assert line.keys() == {"event", "time", "job", "step", "status", "usage"}
    assert "ioSeconds" not in line["usage"]
    assert json.loads(to_json(RunRecord(time=1, name="a", workflow="b"))) == {
        **{"event": "run", "version": 1, "time": 1, "name": "a", "workflow": "b"},
        **{"storages": [], "steps": {}},
    }


@given(st.text(st.sampled_from(',":{}\\\\nul'), max_size=30))
def test_text_that_looks_like_a_field_without_a_value_is_kept(text: str) -> None:
    for each in (text, f'{text},"name":null', f'","name":null,"{text}'):
        run = RunRecord(time=1, name=each, workflow=each, streaming=each)
        assert record_decoder().decode(to_json(run)) == run


def test_text_that_is_not_utf_8_or_of_a_class_of_its_own_is_written(tmp_path: Path) -> None:
    class Scalar(str):
        pass

    run = RunRecord(time=1, name=Scalar("é"), workflow="caf\udce9.cwl")
    (read,) = read_records(write(tmp_path / "a.jsonl", [run]))
    assert read == RunRecord(time=1, name="é", workflow="caf\\xe9.cwl")


# Reading


@pytest.mark.parametrize("cut", [1, 10, 20])
def test_a_line_without_end_is_ignored(tmp_path: Path, cut: int) -> None:
    records: list[Record] = [RUN, EndRecord(time=BEGIN + 1)]
    file = write(tmp_path / "a.jsonl", records)
    file.write_bytes(file.read_bytes()[:-cut])
    assert list(read_records(file)) == [RUN]


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({**json.loads(to_json(RUN)), "later": 1}) + "\n")
    assert list(read_records(file)) == [RUN]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "a.jsonl: file", "nothing was recorded yet"),
        ('{"event": "run"', "a.jsonl: file", "nothing was recorded yet"),
        ('{"event": "end", "time": 1}\n', "a.jsonl:1: event", "no telemetry of one run"),
        ("RUN\nRUN\n", "a.jsonl:2: event", "no telemetry of one run"),
        ("RUN\n{}\n", "a.jsonl:2: event", "version 1"),
        ('RUN\n{"event": "end"}\n', "a.jsonl:2: time", "missing required field"),
        ("RUN\nnonsense\n", "a.jsonl:2: line", "JSON is malformed"),
        ('{"event":"run","version":2,"time":1,"name":"a","workflow":"b"}\n', "a.jsonl:1: version", "2"),
        (f'RUN\n{{"event":"end","time":1,"later":{"[" * 10**5}\n', "a.jsonl:2: line", "recursion"),
        ('RUN\n{"event": "end", "time": NaN}\n', "a.jsonl:2: line", "JSON is malformed"),
        ('RUN\n{"event": "begun", "time": 1}\n', "a.jsonl:2: event", "begun"),
        (
            'RUN\n{"event":"ended","time":1,"job":"","step":"","status":"failed","usage":{"started":1}}\n',
            "a.jsonl:2: usage.ended",
            "missing required field",
        ),
        ('RUN\n{"event":"ended","time":1,"job":"/a/0","step":"/a","status":"done"}\n', "a.jsonl:2: status", "done"),
    ],
)
def test_what_is_no_telemetry_is_named(tmp_path: Path, text: str, place: str, words: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(text.replace("RUN", to_json(RUN).decode()))
    with pytest.raises(HintErrors) as caught:
        list(read_records(file))
    assert place in str(caught.value)
    assert words in str(caught.value)


# Run directories


def test_an_earlier_run_of_the_same_name_is_kept() -> None:
    names = [create_run_directory("exp").name for _ in range(3)]
    assert names == ["exp", "exp-2", "exp-3"]
    assert stat.S_IMODE((runs_directory() / "exp").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["a/b", "../../etc", "", ".", "..", "x" * 1000, "é" * 200, "a\nb\0", "last", " "])
def test_any_name_gives_a_directory_among_the_runs(name: str) -> None:
    first, second = create_run_directory(name), create_run_directory(name)
    assert first != second
    for directory in (first, second):
        assert directory.parent == runs_directory()
        assert directory.is_dir()
        assert directory.name != "last"


def test_a_run_is_found_by_name_path_and_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (write(create_run_directory(name) / "telemetry.jsonl", [RUN]) for name in ("old", "new"))
    os.utime(old, (1, 1))
    create_run_directory("without telemetry")
    elsewhere = write(tmp_path / "copy.jsonl", [RUN])
    assert find_run("old") == old
    assert find_run("last") == find_run("new") == new
    assert find_run(str(old)) == find_run(str(old.parent)) == old
    monkeypatch.chdir(tmp_path)
    assert find_run("copy.jsonl").samefile(elsewhere)
    assert [run_label(path) for path in (old, elsewhere)] == ["old", "copy"]
    monkeypatch.chdir(old.parent)
    assert run_label(find_run("telemetry.jsonl")) == "old"
    assert run_label(tmp_path / "caf\udce9" / "telemetry.jsonl") == "caf\\xe9"


@pytest.mark.parametrize(
    ("names", "text", "words"),
    [
        ((), "last", "there is no run in"),
        ((), "exp", "the path of a telemetry file"),
        (("exp", "other"), "epx", "allowed: `last`, exp, or the path"),
        (("exp", "other"), "zzzzzz", "other"),
        (("exp",), "~nobody-of-this-name/x", "there is no such run"),
    ],
)
def test_an_unknown_run_is_told_with_the_nearest(names: tuple[str, ...], text: str, words: str) -> None:
    for name in names:
        write(create_run_directory(name) / "telemetry.jsonl", [RUN])
    with pytest.raises(HintErrors) as caught:
        find_run(text)
    assert words in str(caught.value)


def test_a_relative_data_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert runs.runs_directory() == tmp_path / ".local/share/streamflow-io/runs"


# The schema


def test_the_committed_schema_is_that_of_the_records() -> None:
    committed = schema.SCHEMA_FILE.read_text(encoding="utf-8")
    assert json.loads(committed) == schema.record_schema(), "run: python -m streamflow_io.records.schema"


def test_schema_and_records_agree() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.record_schema())
    validator = jsonschema.Draft202012Validator(schema.record_schema())
    kinds = set()
    for record in learning_run(jobs=20):
        line = json.loads(to_json(record))
        validator.validate(line)
        assert convert(line, Record) == record
        kinds.add(line["event"])
    assert kinds == {"run", "step", "submitted", "admitted", "started", "ended", "epoch", "choice", "end"}
    assert not validator.is_valid({"event": "started", "time": 1})
    assert not validator.is_valid({"event": "begun", "time": 1, "job": "/a/0", "step": "/a", "location": "l"})
