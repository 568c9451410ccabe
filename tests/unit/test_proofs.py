"""Proofs of streams, kept from run to run, and the data for which they hold."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.graph.candidates import Candidate
from streamflow_io.jobs import proof_key as keys
from streamflow_io.jobs.ending import is_want
from streamflow_io.jobs.proof_key import OtherPrograms, directory_digest, proof_key
from streamflow_io.records.learned.database import VERSION, LearnedStoreError
from streamflow_io.records.learned.extents import ENOUGH, Extent, hold_for
from streamflow_io.records.learned.proofs import (
    Proof,
    ProofKey,
    RememberedProofs,
    TriedBeside,
    Way,
    known_proofs,
    streams_at_once,
    with_known,
)

KEY = ProofKey("a1", "reads", "text", "5d")
READER = Candidate("a1", ("text", "other"))
PROVEN = Proof(KEY, "/count", 1_790_000_000.0, "net", bytes=4_000_000, extents=(Extent(4_000_000, 4_000_000),))


async def remember(path: Path, *proofs: Proof) -> None:
    remembered = RememberedProofs(path, known_proofs(path))
    for proof in proofs:
        await remembered.remember(proof)
    await remembered.close()


def test_nothing_is_made_where_nothing_is_proven(tmp_path: Path) -> None:
    asyncio.run(remember(tmp_path / "data" / "learned.db"))
    assert list(tmp_path.iterdir()) == []


def test_what_is_found_later_replaces_it(tmp_path: Path) -> None:
    path, refused = tmp_path / "learned.db", replace(PROVEN, way=None, reason="it asks for the size")
    asyncio.run(remember(path, PROVEN))
    assert known_proofs(path) == (PROVEN,)
    asyncio.run(remember(path, refused))
    assert known_proofs(path) == (refused,)
    assert not refused.is_proven


def test_what_is_refused_stays_so_whatever_another_run_has_found(tmp_path: Path) -> None:
    path, refused = tmp_path / "learned.db", replace(PROVEN, way=None, reason="it fails with a stream")
    asyncio.run(remember(path, refused))
    asyncio.run(remember(path, PROVEN))
    assert known_proofs(path) == (refused,)


def test_who_has_failed_is_tried_twice_more(tmp_path: Path) -> None:
    """A reader that fails is tried again by a run that knows of the failure; a refusal by a difference stays so."""
    path, failed = tmp_path / "learned.db", replace(PROVEN, way=None, reason="exit code 1 when it reads a stream")
    again = [replace(failed, failures=number).may_be_tried_again for number in range(5)]
    assert again == [False, True, True, False, False]
    assert not replace(PROVEN, failures=1).may_be_tried_again
    asyncio.run(remember(path, replace(failed, failures=1)))
    asyncio.run(remember(path, PROVEN))
    assert known_proofs(path) == (replace(failed, failures=1),), "found before it failed"
    for known in (replace(PROVEN, failures=1), replace(failed, failures=2), replace(PROVEN, failures=2)):
        asyncio.run(remember(path, known))
        assert known_proofs(path) == (known,)
    last = replace(failed, failures=3)
    asyncio.run(remember(path, last))
    asyncio.run(remember(path, replace(PROVEN, failures=3)))
    assert known_proofs(path) == (last,)


def test_a_larger_file_raises_what_is_proven_and_a_smaller_one_never_lowers_it(tmp_path: Path) -> None:
    def proven(*extents: tuple[int, int], way: Way = "net") -> Proof:
        return replace(PROVEN, way=way, extents=tuple(Extent(*each) for each in extents))

    for number, (known, found, kept) in enumerate(
        [
            (proven((9, 9)), proven((50, 60)), proven((50, 60))),
            (proven((50, 60)), proven((9, 9)), proven((50, 60))),
            (proven((50, 60)), proven((9, 90)), proven((50, 90))),
            (proven((5, 5), (9, 9)), proven((7, 7), (8, 8)), proven((7, 7), (9, 9))),
            # How a small file is read says nothing of a large one, and the other way round.
            (proven((5, 5)), proven((9, 9), way="pipe"), proven((9, 9), way="pipe")),
            (proven((9, 9), way="pipe"), proven((5, 5)), proven((9, 9), way="pipe")),
        ]
    ):
        path = tmp_path / f"{number}.db"
        asyncio.run(remember(path, known))
        asyncio.run(remember(path, found))
        assert known_proofs(path) == (kept,)


def test_lists_of_other_lengths_lower_nothing_of_each_other(tmp_path: Path) -> None:
    """Two steps with the same tool get lists of other lengths. Which file of one is which of the other is unknown."""
    path = tmp_path / "learned.db"
    pair, three, four = ((5, 5), (9, 9)), ((1, 1), (1, 1), (9, 9)), ((8, 8),) * 4
    for extents in (pair, three, four, pair):
        asyncio.run(remember(path, replace(PROVEN, extents=tuple(Extent(*each) for each in extents))))
    [kept] = known_proofs(path)
    assert (kept.extents, *kept.others) == (pair, four, three)
    assert [kept.extents_of(files) for files in (2, 3, 4, 5)] == [pair, three, four, ((8, 8),) * 5]
    sizes = [[5, 9], [6, 9], [1, 1, 9], [2, 1, 9], [8] * 4, [9] * 4, [8] * 5, [9] * 5]
    assert [kept.holds_for(each) for each in sizes] == [True, False] * 4


@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0)])
def test_a_larger_file_is_read_in_the_way_in_which_it_was_tried(tmp_path: Path, first: int, then: int) -> None:
    """Two runs try files of other sizes at once; of the large one its first bytes."""
    small = replace(PROVEN, extents=(Extent(9, 9),))
    large = replace(PROVEN, extents=(Extent(ENOUGH, 2 * ENOUGH),), excerpt=ENOUGH)
    for found in ((small, large)[first], (small, large)[then]):
        asyncio.run(remember(tmp_path / "learned.db", found))
    assert known_proofs(tmp_path / "learned.db") == (large,)


@pytest.mark.parametrize(
    ("trials", "kept"),
    [
        # The last trial comes first.
        ([("b", "net", 5, 9), ("c", "net", 5, 9)], [("c", "net", 5, 9), ("b", "net", 5, 9)]),
        ([("b", "net", 5, 9), ("b", "net", 5, 10)], [("b", "net", 5, 10)]),
        ([("b", "net", 5, 10), ("b", "net", 5, 9)], [("b", "net", 5, 10)]),
        # A large file of one input was tried with a small one of the other input only.
        ([("b", "net", 5, 9), ("b", "net", 9, 5)], [("b", "net", 9, 5), ("b", "net", 5, 9)]),
        ([("b", "net", 9, 9), ("b", "pipe", 5, 5)], [("b", "pipe", 5, 5), ("b", "net", 9, 9)]),
        ([("b", "net", ENOUGH, 9), ("b", "net", 2 * ENOUGH, 9)], [("b", "net", 2 * ENOUGH, 9)]),
        # More trials are not kept.
        ([("b", "net", size, 20 - size) for size in range(1, 11)], [("b", "net", n, 20 - n) for n in range(10, 2, -1)]),
    ],
)
def test_of_trials_together_those_that_show_most_are_kept(
    tmp_path: Path, trials: list[tuple[str, Way, int, int]], kept: list[tuple[str, Way, int, int]]
) -> None:
    for port, way, size, other in trials:
        beside = (TriedBeside(port, way, (size,), (other,)),)
        asyncio.run(remember(tmp_path / "learned.db", replace(PROVEN, beside=beside)))
    [proof] = known_proofs(tmp_path / "learned.db")
    assert proof.beside == tuple(TriedBeside(port, way, (size,), (other,)) for port, way, size, other in kept)


sizes = st.integers(1, 12)
trials_of_two = st.lists(st.tuples(st.booleans(), sizes, sizes), max_size=4)


@given(trials=trials_of_two, alone=st.tuples(sizes, sizes), files=st.tuples(sizes, sizes))
def test_two_inputs_stream_at_once_only_with_files_as_large_as_in_one_trial(
    trials: list[tuple[bool, int, int]], alone: tuple[int, int], files: tuple[int, int]
) -> None:
    """Each trial is part of the proof of one of the two inputs. A later trial of one input alone changes nothing."""
    proofs = {
        port: Proof(ProofKey("tool", "reads", port), "/a", 1.0, "net", extents=(Extent(size, size),))
        for port, size in zip("ab", alone, strict=True)
    }
    for is_first, one, other in trials:
        port, of, size, its = ("a", "b", one, other) if is_first else ("b", "a", other, one)
        extents = (Extent(size, size),)
        found = replace(proofs[port], extents=extents, beside=(TriedBeside(of, "net", (size,), (its,)),))
        proofs[port] = with_known(found, proofs[port])
    at_once = streams_at_once(proofs, {"a": 1, "b": 1})
    assert at_once.keys() == ({"a", "b"} if trials else {"a"})
    if trials and all(hold_for(at_once[port], [size]) for port, size in zip("ab", files, strict=True)):
        assert any(files[0] <= one and files[1] <= other for _, one, other in trials)


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (TriedBeside("b", "net", (7,), (8,)), {"a": ((7, 7),), "b": ((8, 8),)}),
        (TriedBeside("b", "pipe", (7,), (8,)), {"a": ((9, 9),)}),  # This input is read in another way by now.
        (TriedBeside("b", "net", (0,), (8,)), {"a": ((9, 9),)}),
        (TriedBeside("b", "net", (7,), ()), {"a": ((9, 9),)}),
        (TriedBeside("b", "net", (7, 6), (8,)), {"a": ((6, 6),), "b": ((8, 8),)}),
    ],
)
def test_what_was_tried_together_bounds_what_streams_at_once(
    beside: TriedBeside, expected: dict[str, tuple[tuple[int, int], ...]]
) -> None:
    alone = replace(PROVEN, extents=(Extent(9, 9),))
    ports = {port: replace(alone, key=ProofKey("tool", "reads", port)) for port in "ab"}
    assert streams_at_once(ports | {"a": replace(ports["a"], beside=(beside,))}, {"a": 1, "b": 1}) == expected


def test_an_input_streams_beside_a_declared_one_as_far_as_it_was_tried_with_that() -> None:
    tried = replace(PROVEN, extents=(Extent(9, 9),), beside=(TriedBeside("d", "pipe", (5,), (1,)),))
    assert streams_at_once({"a": tried}, {"a": 1}, "d") == {"a": ((5, 5),)}
    assert streams_at_once({"a": tried}, {"a": 1}, "de") == {}


async def test_a_proof_is_news_for_who_is_about_to_wait(tmp_path: Path) -> None:
    remembered = RememberedProofs(tmp_path / "learned.db", ())
    waiting = asyncio.ensure_future(remembered.news())
    await remembered.remember(PROVEN)
    assert waiting.done()
    later = asyncio.ensure_future(remembered.news())
    await asyncio.sleep(0)
    assert not later.done()
    later.cancel()
    await remembered.close()


async def test_larger_files_are_to_be_proven(tmp_path: Path) -> None:
    path = tmp_path / "learned.db"
    remembered = RememberedProofs(path, [replace(PROVEN, extents=(Extent(5, 90),))])
    assert not remembered.is_wanted(KEY, [90])
    assert remembered.is_wanted(KEY, [91])
    assert remembered.is_wanted(replace(KEY, port="other"), [1])
    remembered.outgrown(KEY)
    assert remembered.is_wanted(KEY, [90]), "a job wants more bytes of a smaller file"
    await remembered.remember(replace(PROVEN, extents=(Extent(80, 80),)))
    assert remembered.of(KEY) == replace(PROVEN, extents=(Extent(80, 90),))
    assert not remembered.is_wanted(KEY, [90])
    await remembered.close()


@pytest.mark.parametrize(
    ("said", "is_wanting"),
    [
        ("cat: write error: No space left on device", True),
        ("MemoryError", True),
        ("terminate called after throwing an instance of 'std::bad_alloc'", True),
        ("java.lang.OutOfMemoryError: Java heap space", True),
        ("fork: Cannot allocate memory", True),
        ("sort: memory exhausted", True),
        ("error: in.txt: Illegal seek", False),
        ("read error: Resource temporarily unavailable", False),
        ("", False),
    ],
)
def test_who_fails_for_want_of_something_says_nothing_of_streams(said: str, is_wanting: bool) -> None:
    assert is_want(said) is is_wanting


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_most_that_is_refused_of_an_output_stays(tmp_path: Path, order: tuple[int, ...]) -> None:
    path, early = tmp_path / "learned.db", Proof(replace(KEY, kind="writes"), "/a", 1.0, closes=2)
    found = (early, replace(early, closes=0), replace(early, closes=None, reason="it was written again"))
    for last, number in enumerate(order):
        asyncio.run(remember(path, found[number]))
        assert known_proofs(path) == (found[max(order[: last + 1])],)


def test_who_finds_the_same_again_does_not_begin_to_count_anew(tmp_path: Path) -> None:
    path, again = tmp_path / "learned.db", replace(PROVEN, learned=PROVEN.learned + 9, way="pipe")
    asyncio.run(remember(path, replace(PROVEN, runs=3)))
    asyncio.run(remember(path, again))
    assert known_proofs(path) == (replace(again, runs=3),)


def test_jobs_that_have_streamed_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "learned.db"

    async def stream() -> None:
        remembered = RememberedProofs(path, ())
        await remembered.remember(PROVEN)
        remembered.streamed([KEY, replace(KEY, port="other")])
        remembered.streamed([KEY])
        remembered.streamed([])
        await remembered.close()

    asyncio.run(stream())
    assert known_proofs(path) == (replace(PROVEN, runs=2),)


def test_a_file_that_cannot_be_used_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "learned.db"
    path.write_bytes(b"no database" * 1000)

    async def run() -> None:
        remembered = RememberedProofs(path, ())
        await remembered.remember(PROVEN)
        await remembered.remember(replace(PROVEN, runs=3))
        remembered.streamed([KEY])
        assert remembered.of(KEY) == replace(PROVEN, runs=3)
        await remembered.close()

    asyncio.run(run())
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("What streams without a hint is not remembered in this run: ")


@pytest.mark.parametrize(
    "change",
    [f"PRAGMA user_version = {VERSION + 1}", f"PRAGMA user_version = {VERSION - 1}", "PRAGMA application_id = 7"],
    ids=["newer", "older", "of another program"],
)
def test_nothing_is_read_of_a_file_that_is_not_known(tmp_path: Path, change: str) -> None:
    path = tmp_path / "learned.db"
    asyncio.run(remember(path, PROVEN))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
    with pytest.raises(LearnedStoreError):
        known_proofs(path)


def test_a_file_that_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    with pytest.raises(LearnedStoreError, match="File name too long"):
        known_proofs(tmp_path / ("x" * 300))


def test_a_file_that_could_not_be_read_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        remembered = RememberedProofs(tmp_path / "learned.db", None)
        await remembered.remember(PROVEN)
        remembered.streamed([KEY])
        assert remembered.of(KEY) == PROVEN
        await remembered.close()

    asyncio.run(run())
    assert caplog.messages == [str(path) for path in tmp_path.iterdir()] == []


def file(name: str, size: int = 10**9, checksum: str = "sha1$1") -> dict[str, Any]:
    digest = f"sha1${checksum.removeprefix('sha1$').zfill(40)}"
    return {"class": "File", "basename": name, "path": f"/tmp/{checksum}/{name}", "size": size, "checksum": digest}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"text": file("b.txt", 5, "sha1$2")}, True),
        ({"text": {"class": "File", "basename": "b.txt", "path": "/tmp/b.txt"}}, True),
        ({"text": file("b.gz")}, False),
        ({"text": file("b.txt") | {"format": "edam:2572"}}, False),
        ({"other": file("c.bed", 70, "sha1$5")}, True),
        ({"genome": file("hg38.fa", 2 * 10**9, "sha1$9")}, True),
        ({"script": file("run.py", 300, "sha1$8")}, False),
        ({"archive": file("tool.jar", 10**9, "sha1$8")}, False),
        ({"lines": 4}, False),
        ({"mode": "slow"}, False),
        ({"mode": None}, False),
        ({"more": [True]}, False),
    ],
)
def test_what_a_proof_holds_for(change: dict[str, Any], same: bool) -> None:
    inputs = {
        "text": file("a.txt"),
        "other": file("c.bed", 60, "sha1$4"),
        "genome": file("chr1.fa"),
        "script": file("run.py", 300, "sha1$7"),
        "archive": file("tool.jar", 10**9, "sha1$7"),
        "lines": 3,
        "mode": "fast",
        "more": [],
    }
    assert (proof_key(READER, "text", {**inputs, **change}) == proof_key(READER, "text", inputs)) is same


def unfinished(name: str) -> dict[str, Any]:
    return {"class": "File", "basename": name, "path": f"/tmp/{name}"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (file("run.py", 300, "sha1$4"), True),
        (file("run.py", 300, "sha1$5"), False),
        (unfinished("run.py"), False),
        ({"class": "File", "basename": "run.py", "size": 9, "contents": "print()"}, False),
    ],
)
def test_a_proof_holds_for_the_same_scripts_of_earlier_steps(change: dict[str, Any], same: bool) -> None:
    """A name says that a file is a script. A small script is not a stream itself."""
    inputs = {"text": file("a.txt"), "other": file("run.py", 300, "sha1$4")}
    assert (proof_key(READER, "text", {**inputs, "other": change}) == proof_key(READER, "text", inputs)) is same
    assert proof_key(READER, "other", inputs) is None
    assert proof_key(READER, "other", {**inputs, "other": file("large.json")}) is not None


def test_a_file_of_an_earlier_step_that_begins_as_a_script_is_one(tmp_path: Path) -> None:
    def key(content: str, checksum: str, port: str = "text") -> ProofKey | None:
        (tmp_path / "run").write_text(content)
        run = {**file("run", len(content), checksum), "path": str(tmp_path / "run")}
        return proof_key(READER, port, {"text": file("a.txt"), "other": run}, sees_files=True)

    assert key("#!/bin/sh\ncat", "sha1$1") != key("#!/bin/sh\ntac", "sha1$2")
    assert key("#!/bin/sh\ncat", "sha1$1", "other") is None
    assert key("1 2 3", "sha1$1") == key("4 5 6", "sha1$2")
    # Annotations of genomes begin so.
    assert key("#!genome-build one", "sha1$1") == key("#!genome-build two", "sha1$2")


@pytest.mark.parametrize("port", ["other", "of_the_workflow"])
@pytest.mark.parametrize(
    ("name", "same"), [("program", False), ("tool.PYZ", False), ("large.gtf", True), ("large.json", True)]
)
def test_a_large_program_has_to_be_the_same(tmp_path: Path, port: str, name: str, same: bool) -> None:
    """A program of an earlier step, and a program that is an input of the workflow."""
    (tmp_path / name).write_bytes(b"\x7fELF")
    inputs = [{**file(name, 2**20, checksum), "path": str(tmp_path / name)} for checksum in ("sha1$1", "sha1$2")]
    first, second = (proof_key(READER, "text", {"text": file("a.txt"), port: each}, sees_files=True) for each in inputs)
    assert (first == second) is same


@pytest.mark.parametrize("name", ["options.txt", "run.py", "tool.jar"])
def test_a_file_without_a_checksum_has_to_be_the_same(tmp_path: Path, name: str) -> None:
    """Where its content cannot be looked at, nothing is proven."""

    def key(content: bytes, *, sees_files: bool) -> ProofKey | None:
        (tmp_path / name).write_bytes(content)
        value = {"class": "File", "basename": name, "path": str(tmp_path / name), "size": len(content)}
        return proof_key(READER, "text", {"text": file("a.txt"), "script": value}, sees_files=sees_files)

    contents = [b"1", b"2", b"3" * 2**19] if name == "tool.jar" else [b"1", b"2"]
    found = [key(content, sees_files=True) for content in contents]
    assert None not in found
    assert len({of.options for of in found if of is not None}) == len(contents)
    assert key(b"1", sees_files=False) is None


def test_a_large_file_named_like_a_configuration_is_data_while_it_is_written() -> None:
    written, complete = unfinished("large.json"), file("large.json", 2**20, "sha1$1")
    assert proof_key(READER, "text", {"text": file("a.txt"), "other": written}) == proof_key(
        READER, "text", {"text": file("a.txt"), "other": complete}
    )


@pytest.mark.parametrize("text", ["{}", "python3 -I {} -q | sort", "cd /; '{}'<in", "--script={}"])
def test_a_proof_holds_for_the_same_script_at_the_path_in_a_text(tmp_path: Path, text: str) -> None:
    def key(name: str, content: str) -> ProofKey | None:
        (tmp_path / name).write_text(content)
        values = {"text": file("a.txt"), "path": text.format(tmp_path / name)}
        return proof_key(READER, "text", values, sees_files=True)

    assert key("run.py", "print(1)") != key("run.py", "print(1, 2)")
    assert key("table", "1 2") == key("table", "3")


def test_it_matters_whether_there_is_one_sample_but_not_how_many_there_are() -> None:
    def key(*files: str) -> ProofKey | None:
        return proof_key(READER, "text", {"text": [file(name) for name in files], "names": [*files[:1]]})

    assert key("a.txt", "b.txt", "c.txt") == key("a.txt", "d.txt") == key("a.txt", "a.txt")
    assert key("a.txt", "b.gz") != key("a.txt", "b.txt")
    assert key("a.txt", "b.txt") != key("a.txt"), "a program may say of which file, or look at sizes"


def directory_of(path: Path) -> dict[str, Any]:
    return {"class": "Directory", "basename": "scripts", "path": str(path)}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda at: None, True),
        (lambda at: (at / "run.sh").write_text("wc -c\n"), False),
        (lambda at: (at / "deep" / "options").write_text("fast"), False),
        (lambda at: (at / "deep" / "options").rename(at / "options"), False),
        (lambda at: (at / "more").mkdir(), False),
        # Python has compared the cache with the modules, and a large file is data.
        (lambda at: (at / "__pycache__").mkdir(), True),
        (lambda at: (at / "genome.fa").write_bytes(b"c" * 300_000), True),
        (lambda at: (at / "genome.fa").write_bytes(b"g"), False),
        (lambda at: os.utime(at / "run.sh", (1, 1)), True),
        (lambda at: os.utime(at / "genome.fa", (1, 1)), True),
        (lambda at: os.utime(at / "deep" / "tool.jar", (1, 1)), False),
    ],
)
def test_a_proof_holds_for_the_same_small_files_below_a_directory(
    tmp_path: Path, change: Callable[[Path], object], same: bool
) -> None:
    """Wherever the Directory is, and however deep in an input."""
    keys = []
    for name in ("first", "second"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "options").write_text("slow")
        (tmp_path / name / "run.sh").write_text("wc -l\n")
        (tmp_path / name / "genome.fa").write_bytes(b"a" * 300_000)
        (tmp_path / name / "deep" / "tool.jar").write_bytes(b"PK" * 300_000)
        os.utime(tmp_path / name / "deep" / "tool.jar", (5, 5))
        if name == "second":
            change(tmp_path / name)
        inputs = {"text": file("a.txt"), "tools": [{"scripts": directory_of(tmp_path / name)}]}
        keys.append(proof_key(READER, "text", inputs, sees_files=True))
    assert None not in keys
    assert (keys[0] == keys[1]) is same


def test_a_directory_is_read_once_for_all_inputs_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, digests = list[str](), dict[str, str | None]()
    monkeypatch.setattr(keys, "directory_digest", lambda path: read.append(path) or directory_digest(path))
    inputs = {"text": file("a.txt"), "other": file("b.txt"), "index": directory_of(tmp_path)}
    for port in READER.inputs:
        with_digests = proof_key(READER, port, inputs, sees_files=True, digests=digests)
        assert with_digests == proof_key(READER, port, inputs, sees_files=True) is not None
    assert read == [str(tmp_path)] * (1 + len(READER.inputs))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda at: at.rmdir(),
        lambda at: (at / "link").symlink_to("nowhere"),
        lambda at: (at / "link").symlink_to(at),
        lambda at: os.mkfifo(at / "fifo"),
        lambda at: [(at / str(number)).touch() for number in range(1001)],
        lambda at: [(at / str(number)).write_bytes(b"0" * 2**18) for number in range(17)],
    ],
    ids=["missing", "dangling", "loop", "fifo", "many", "large"],
)
def test_nothing_is_proven_with_a_directory_whose_contents_are_not_known(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    inputs = {"text": file("a.txt"), "scripts": directory_of(tmp_path / "scripts")}
    (tmp_path / "scripts").mkdir()
    assert proof_key(READER, "text", inputs, sees_files=True) is not None
    assert proof_key(READER, "text", inputs) is None, "it is on another host, or still written"
    literal = {**inputs, "scripts": {"class": "Directory", "listing": []}}
    assert proof_key(READER, "text", literal, sees_files=True) is None
    spoil(tmp_path / "scripts")
    assert proof_key(READER, "text", inputs, sees_files=True) is None


def test_what_is_refuted_of_a_declared_input_stays_so_whatever_a_directory_has(tmp_path: Path) -> None:
    inputs = {"text": file("a.txt"), "scripts": directory_of(tmp_path)}
    key = proof_key(Candidate("a1", (), declared=("text",)), "text", inputs, sees_files=True)
    (tmp_path / "run.sh").touch()
    for sees in (True, False):
        assert proof_key(Candidate("a1", (), declared=("text",)), "text", inputs, sees_files=sees) == key
    assert key is not None


def test_programs_that_are_other_ones_where_the_job_runs_have_proofs_of_their_own() -> None:
    inputs = {"text": file("a.txt")}
    programs: list[OtherPrograms] = [(), (("cat", (5, 3)),), (("cat", (5, 4)),), (("cat", None),), (("/cat", None),)]
    assert len({proof_key(READER, "text", inputs, others) for others in programs}) == len(programs)


def test_each_input_and_each_tool_has_proofs_of_its_own() -> None:
    inputs = {"one": file("a.txt"), "two": file("b.txt")}
    keys = {proof_key(Candidate(tool, tuple(inputs)), port, inputs) for tool in ("a1", "b2") for port in inputs}
    assert len({key.digest for key in keys if key is not None}) == 4
