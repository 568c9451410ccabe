"""Whether two runs of a job have made the same, modulo where they ran."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.workflow import Token

from streamflow_io.adapters.paths import NoChecksumsError
from streamflow_io.proofs.original_job import described
from streamflow_io.proofs.same_outputs import Places, first_difference, first_unlike, unlike_files

PLAIN = Places(("/w/out-1", "/w/in-1", "/w/tmp-1"), ("/w/in-1/a/reads.fq",))
AGAIN = Places(("/w/out-2", "/w/in-2", "/w/tmp-2"), ("/w/in-2/b/reads.fq",))


def file(path: str, **fields: Any) -> dict[str, Any]:
    known = {"class": "File", "path": path, "basename": path.rpartition("/")[2], "size": 3, "checksum": "sha1$a"}
    return {**known, "location": f"file://{path}", **fields}


def difference(plain: Any, again: Any) -> str | None:
    return first_difference({"out": plain}, PLAIN, {"out": again}, AGAIN)


@pytest.mark.parametrize(
    ("plain", "again"),
    [
        (file("/w/out-1/o"), file("/w/out-2/o")),
        (file("/w/in-1/a/reads.fq"), file("/w/in-2/b/reads.fq")),
        (
            file("/w/out-1/é o", location="file:///w/out-1/%C3%A9%20o"),
            file("/w/out-2/é o", location="file:///w/out-2/%C3%A9%20o"),
        ),
        ("in /w/tmp-1/x and /w/out-1", "in /w/tmp-2/x and /w/out-2"),
        ([1, None, True, {"a": 2.5}], [1, None, True, {"a": 2.5}]),
        (float("nan"), float("nan")),
        (None, None),
    ],
)
def test_what_is_the_same(plain: Any, again: Any) -> None:
    assert difference(plain, again) is None


@pytest.mark.parametrize(
    ("again", "named"),
    [
        (file("/w/out-2/other"), "o"),
        (file("/w/out-2/o", size=4), "o"),
        (file("/w/out-2/o", checksum="sha1$b"), "o"),
        (file("/w/out-2/o", secondaryFiles=[file("/w/out-2/o.i")]), "o"),
        (file("/w/out-1/o"), "o"),
        (None, "o"),
        ([file("/w/out-2/o")], "o"),
    ],
)
def test_a_file_that_is_not_the_same(again: Any, named: str) -> None:
    assert difference(file("/w/out-1/o"), again) == named


def test_the_element_that_differs_is_named() -> None:
    plain = [file("/w/out-1/a"), file("/w/out-1/b")]
    assert difference(plain, [file("/w/out-2/a"), file("/w/out-2/b", size=9)]) == "b"
    assert difference(plain, plain[:1]) == "out"


@pytest.mark.parametrize(("plain", "again"), [(1, True), (1, 1.0), (0, False), ("1", 1), ({}, []), ("", None)])
def test_values_of_other_types_differ(plain: Any, again: Any) -> None:
    assert difference(plain, again) == "out"


def test_what_the_program_was_shown_counts_too() -> None:
    disguised = Places(AGAIN.directories, AGAIN.streams, shown=PLAIN)
    for text in ("/w/out-1/o", "/w/out-2/o", "/w/in-1/a/reads.fq"):
        assert first_difference({"out": text.replace("-2", "-1")}, PLAIN, {"out": text}, disguised) is None


def test_an_output_that_is_missing_differs() -> None:
    assert first_difference({"out": 1, "more": 2}, PLAIN, {"out": 1}, AGAIN) == "more"
    assert first_difference({"out": 1}, PLAIN, {"out": 1, "more": None}, AGAIN) == "more"


def test_directories_are_compared_with_what_is_in_them() -> None:
    def directory(run: int, checksum: str) -> dict[str, Any]:
        return {"class": "Directory", "path": f"/w/out-{run}/d", "basename": "d", "checksums": {"x": checksum}}

    assert difference(directory(1, "a"), directory(2, "a")) is None
    assert difference(directory(1, "a"), directory(2, "b")) == "d"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4))
def test_everything_is_the_same_as_itself(outputs: dict[str, Any]) -> None:
    assert first_difference(outputs, PLAIN, outputs, PLAIN) is None


@given(_VALUES, _VALUES)
def test_the_order_of_two_runs_does_not_matter(one: Any, other: Any) -> None:
    forward = first_difference({"o": one}, PLAIN, {"o": other}, PLAIN)
    backward = first_difference({"o": other}, PLAIN, {"o": one}, PLAIN)
    assert (forward is None) == (backward is None)


DIRECTORY = {"class": "Directory", "path": "/d", "checksums": {"a": "sha1$1", "b": "sha1$2"}}


@pytest.mark.parametrize(
    ("plain", "less"),
    [
        (file("/w/out-1/o"), file("/w/out-2/o", size=1, checksum="sha1$b")),
        (file("/w/out-1/o", size=0), file("/w/out-2/o", size=0)),
        (DIRECTORY, {**DIRECTORY, "checksums": {"a": "sha1$3"}}),
        ([file("/o"), file("/p")], [file("/o")]),
        ({"count": 7, "name": "a"}, {"count": 3, "name": "b"}),
        (None, None),
        ([], []),
    ],
)
def test_what_is_made_of_less_is_alike(plain: Any, less: Any) -> None:
    assert first_unlike({"out": plain}, {"out": less}) is None


@pytest.mark.parametrize(
    ("plain", "less"),
    [
        (file("/w/out-1/o"), file("/w/out-2/o", size=0)),
        (file("/w/out-1/o", size=0), file("/w/out-2/o")),
        (file("/w/out-1/o"), None),
        (None, file("/w/out-2/o")),
        (DIRECTORY, {**DIRECTORY, "checksums": {}}),
        (DIRECTORY, file("/d")),
        ([file("/o")], []),
        ({"count": 7}, {}),
        (7, "7"),
    ],
)
def test_what_is_missing_of_less_is_found(plain: Any, less: Any) -> None:
    assert first_unlike({"out": plain}, {"out": less}) == "out"
    assert first_unlike({"out": plain}, {}) == "out"


def unlike(plain: Any, again: Any) -> list[tuple[str, str]] | None:
    return unlike_files({"out": plain}, PLAIN, {"out": again}, AGAIN)


def test_the_files_that_differ_are_told_with_their_paths() -> None:
    other = file("/w/out-2/o", checksum="sha1$b", size=4)
    assert unlike(file("/w/out-1/o"), other) == [("/w/out-1/o", "/w/out-2/o")]
    assert unlike(file("/w/out-1/o"), file("/w/out-2/o")) == []
    pair = [file("/w/out-1/a"), {"x": file("/w/out-1/o")}]
    assert unlike(pair, [file("/w/out-2/a"), {"x": other}]) == [("/w/out-1/o", "/w/out-2/o")]
    beside = file("/w/out-1/a", secondaryFiles=[file("/w/out-1/o")])
    assert unlike(beside, file("/w/out-2/a", secondaryFiles=[other])) == [("/w/out-1/o", "/w/out-2/o")]
    directories = [{**DIRECTORY, "path": f"/w/out-{n}/d", "checksums": {"a": f"sha1${n}", "b": "s"}} for n in (1, 2)]
    assert unlike(*directories) == [("/w/out-1/d/a", "/w/out-2/d/a")]


@pytest.mark.parametrize(
    ("plain", "again"),
    [
        (1, 2),
        (file("/w/out-1/o"), None),
        (file("/w/out-1/o"), file("/w/out-2/p", checksum="sha1$b")),
        (file("/w/out-1/o"), file("/w/out-2/o", checksum="sha1$b", format="x")),
        ([file("/w/out-1/o")], []),
        (DIRECTORY, {**DIRECTORY, "checksums": {"a": "sha1$1"}}),
    ],
)
def test_what_differs_in_more_than_the_content_of_files(plain: Any, again: Any) -> None:
    assert unlike(plain, again) is None


@given(_VALUES, _VALUES)
def test_what_has_no_unlike_files_is_the_same(one: Any, other: Any) -> None:
    found = unlike_files({"o": one}, PLAIN, {"o": other}, PLAIN)
    assert (found == []) == (first_difference({"o": one}, PLAIN, {"o": other}, PLAIN) is None)


@pytest.mark.parametrize("checksum", [None, "sha1$", "sha1$sh: 1: sha1sum: not found"])
async def test_outputs_without_checksums_are_not_compared(checksum: str | None) -> None:
    """Where the location has no `sha1sum`, all files would be the same if they had the same size."""
    outputs = {"out": Token([file("/w/out-1/o", checksum=checksum)])}
    with pytest.raises(NoChecksumsError):
        await described(cast(Any, None), cast(Any, None), outputs)
