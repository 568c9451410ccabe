"""Files with names in the directories of several jobs count once."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.storage.intermediates.linked_files import FileNumber, LinkedFiles

SIZES = {("", 1, number): 10**number for number in range(4)}
LOOKS = st.lists(st.tuples(st.sampled_from("abc"), st.frozensets(st.sampled_from([*SIZES]))))


def test_the_last_directory_counts() -> None:
    """The other directories are removed before it, as a rule."""
    linked, file = LinkedFiles(), {("", 1, 1): 7}
    assert linked.seen("a", file) == (0, {})
    assert linked.seen("b", file) == (0, {"a": -7})
    assert linked.seen("a", file) == (7, {})
    assert linked.seen("a", {}) == (0, {})
    assert linked.seen("b", {}) == (0, {})


def test_a_file_that_is_left_counts_for_another_directory() -> None:
    linked, file = LinkedFiles(), {("", 1, 1): 7}
    linked.seen("a", file)
    linked.seen("b", file)
    assert linked.seen("b", {}) == (0, {"a": 7})
    assert linked.seen("c", file) == (0, {"a": -7})


@given(LOOKS)
def test_each_file_counts_once(looks: list[tuple[str, frozenset[FileNumber]]]) -> None:
    linked, held, counted = LinkedFiles(), dict[str, frozenset[FileNumber]](), defaultdict[str, int](int)
    for directory, files in looks:
        held[directory] = files
        elsewhere, changes = linked.seen(directory, {file: SIZES[file] for file in files})
        counted[directory] = sum(SIZES[file] for file in files) - elsewhere
        for other, change in changes.items():
            assert other != directory
            counted[other] += change
        assert sum(counted.values()) == sum(SIZES[file] for file in frozenset().union(*held.values()))
        assert min(counted.values()) >= 0
