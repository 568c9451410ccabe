"""Files of another attempt of a job that have the contents of the first."""

from __future__ import annotations

from streamflow_io.jobs.remade_files import same_files


def file(path: str, checksum: str | None = "x", **fields: object) -> dict[str, object]:
    return {"class": "File", "path": path, "checksum": checksum, **fields}


def test_files_at_the_same_places_are_compared() -> None:
    one = [{"a": file("/1/a", secondaryFiles=[file("/1/b")]), "c": [file("/1/c"), 3]}, file("/1/d")]
    other = [{"a": file("/2/a", secondaryFiles=[file("/2/b")]), "c": [file("/2/c", "y"), 4]}, file("/2/d")]
    assert sorted(same_files([one], [other])) == [("/1/a", "/2/a"), ("/1/b", "/2/b"), ("/1/d", "/2/d")]


def test_what_is_not_known_to_be_the_same_is_left_out() -> None:
    assert [*same_files(file("/1", None), file("/2", None))] == []
    assert [*same_files([file("/1")], [file("/2"), file("/3")])] == []
    assert [*same_files(file("/1"), None)] == []
    assert [*same_files({"class": "Directory", "path": "/1"}, {"class": "Directory", "path": "/2"})] == []
