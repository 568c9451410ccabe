"""Whether two runs of a job have made the same, wherever they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

# What stands for a place of a job, in each of its runs: nothing that a path can have.
_MARK = "\0"


@dataclass(frozen=True)
class Places:
    """Where a run of a job had what.

    :ivar directories: absolute, in the same order for each run: of its outputs, its inputs, and what it throws away
    :ivar streams: the paths of the files that are read as streams in one of the runs, in the same order
    :ivar shown: the places that the program was shown instead; None: these
    """

    directories: tuple[str, ...]
    streams: tuple[str, ...]
    shown: Places | None = None

    def without(self, text: str) -> str:
        """A text that has the same in the place of each of these paths, whichever the run."""
        if self.shown is not None:
            text = self.shown.without(text)
        for number, path in enumerate((*self.streams, *self.directories)):
            for written in dict.fromkeys((path, quote(path))):
                text = text.replace(written, f"{_MARK}{number}{_MARK}")
        return text


def first_difference(
    plain: Mapping[str, Any], its_places: Places, again: Mapping[str, Any], places: Places
) -> str | None:
    """What differs first in the outputs of two runs of a job, for people; None: nothing does.

    Files are the same if they have the same name, size and checksum, and all that is known of them is the same, but for
    the directories of the run.

    :param plain: by output, as in CWL, of the one run
    :param again: of the other one
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
    """The paths of the files that differ in the outputs of two runs of a job; None: something else differs, too.

    :param plain: by output, as in CWL, of the one run
    :param again: of the other one
    """
    found = list[tuple[str, str]]()
    same = plain.keys() == again.keys() and all(
        _but_for_contents(plain[name], its_places, again[name], places, found) for name in plain
    )
    return found if same else None


def _but_for_contents(plain: Any, its: Places, again: Any, places: Places, found: list[tuple[str, str]]) -> bool:
    """Whether two values are the same but for the contents of files.

    :param found: gets the paths of these
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
    """Which output of a job is of another kind, when it has read less; None: none is.

    A file that was there is there, and has something in it if it had; so has a list. A program that says nothing of
    what was cut, and makes nothing of it, is found out so.
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
    """As `==`, but `1`, `1.0` and `true` are three values."""
    if type(plain) is not type(again):
        return False
    if isinstance(plain, dict):
        return plain.keys() == again.keys() and all(_is_same(plain[key], again[key]) for key in plain)
    if isinstance(plain, list):
        return len(plain) == len(again) and all(map(_is_same, plain, again))
    return bool(plain == again) or (plain != plain and again != again)
