"""Compares the outputs of two runs of a job, wherever the job ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

# Stands for a path of the job in each of its runs; no path can have this character.
_MARK = "\0"


class Places(Struct, frozen=True):
    """The paths of one run of a job.

    :ivar directories: absolute, in the same order for each run: of its outputs, its inputs, and its temporary files
    :ivar streams: the paths of the files that one of the runs reads as streams, in the same order for each run
    :ivar shown: the places that the program was shown instead; None: the program was shown these
    """

    directories: tuple[str, ...]
    streams: tuple[str, ...]
    shown: Places | None = None

    def without(self, text: str) -> str:
        """The text with a mark in place of each of these paths; the mark is the same in all runs."""
        if self.shown is not None:
            text = self.shown.without(text)
        for number, path in enumerate((*self.streams, *self.directories)):
            for written in dict.fromkeys((path, quote(path))):
                text = text.replace(written, f"{_MARK}{number}{_MARK}")
        return text


def first_difference(
    plain: Mapping[str, Any], its_places: Places, again: Mapping[str, Any], places: Places
) -> str | None:
    """The name of the first output or file that differs between two runs of a job; None: all are the same.

    Files are the same if they have the same name, size, checksum, and all other fields. The directories of the run may
    differ.

    :param plain: the outputs of one run by name, as CWL objects
    """
    for name in dict.fromkeys((*plain, *again)):
        if name not in plain or name not in again:
            return name
        if (found := _difference(_known(plain[name], its_places), _known(again[name], places), name)) is not None:
            return found
    return None


def unlike_files(
    plain: Mapping[str, Any], its_places: Places, again: Mapping[str, Any], places: Places
) -> list[tuple[str, str]] | None:
    """The paths of the files that differ between two runs of a job; None: something else differs, too.

    :param plain: the outputs of one run by name, as CWL objects
    :param again: the outputs of the other run
    """
    found = list[tuple[str, str]]()
    same = plain.keys() == again.keys() and all(
        _but_for_contents(plain[name], its_places, again[name], places, found) for name in plain
    )
    return found if same else None


def _but_for_contents(plain: Any, its: Places, again: Any, places: Places, found: list[tuple[str, str]]) -> bool:
    """Whether two values are the same but for the contents of files.

    :param found: gets the paths of the files that differ
    """
    if isinstance(plain, list) and isinstance(again, list):
        pairs = zip(plain, again, strict=False)
        return len(plain) == len(again) and all(_but_for_contents(a, its, b, places, found) for a, b in pairs)
    if not isinstance(plain, dict) or not isinstance(again, dict) or plain.keys() != again.keys():
        return _is_same(_known(plain, its), _known(again, places))
    kind = plain.get("class")
    contents = {"checksum", "size"} if kind == "File" else {"checksums"} if kind == "Directory" else set()
    if kind == "File" and plain.get("checksum") != again.get("checksum"):
        found.append((plain["path"], again["path"]))
    if kind == "Directory":
        one, other = plain.get("checksums", {}), again.get("checksums", {})
        if one.keys() != other.keys():
            return False
        found += [(f"{plain['path']}/{f}", f"{again['path']}/{f}") for f in one if one[f] != other[f]]
    return all(_but_for_contents(plain[key], its, again[key], places, found) for key in plain.keys() - contents)


def first_unlike(plain: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """The first output of a job that is of another kind when the job reads less; None: all are of the same kind.

    Each file and list has to be there again, and must not be empty if it was not. So a program is found out that makes
    nothing of a cut file, without an error.
    """
    unlike = (name for name in plain if name not in again or not _is_alike(plain[name], again[name]))
    return next(unlike, None)


def _is_alike(plain: Any, again: Any) -> bool:
    if isinstance(plain, Mapping) and isinstance(again, Mapping):
        if plain.get("class") == "File":
            return again.get("class") == "File" and bool(plain.get("size")) == bool(again.get("size"))
        if plain.get("class") == "Directory":
            return bool(plain.get("checksums")) == bool(again.get("checksums"))
        return plain.keys() == again.keys() and all(_is_alike(plain[key], again[key]) for key in plain)
    if isinstance(plain, list | tuple) and isinstance(again, list | tuple):
        return bool(plain) == bool(again)
    return type(plain) is type(again)


def _known(value: Any, places: Places) -> Any:
    if isinstance(value, str):
        return places.without(value)
    if isinstance(value, Mapping):
        return {places.without(str(key)): _known(inner, places) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_known(inner, places) for inner in value]
    return value


def _difference(plain: Any, again: Any, name: str) -> str | None:
    if _is_same(plain, again):
        return None
    if isinstance(plain, list) and isinstance(again, list) and len(plain) == len(again):
        return next(found for pair in zip(plain, again, strict=True) if (found := _difference(*pair, name)) is not None)
    for value in (plain, again):
        if isinstance(value, Mapping) and isinstance(value.get("basename"), str):
            return str(value["basename"])
    return name


def _is_same(plain: Any, again: Any) -> bool:
    """Whether two values are equal. `1`, `1.0` and `true` are three values, and NaN is equal to itself."""
    if type(plain) is not type(again):
        return False
    if isinstance(plain, dict):
        return plain.keys() == again.keys() and all(_is_same(plain[key], again[key]) for key in plain)
    if isinstance(plain, list):
        return len(plain) == len(again) and all(map(_is_same, plain, again))
    return bool(plain == again) or (plain != plain and again != again)
