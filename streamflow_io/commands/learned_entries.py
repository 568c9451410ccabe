"""The kinds of entries that `streamflow-io learned` shows, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from textwrap import shorten
from typing import Any, Generic

from msgspec import Struct
from rich.table import Table

from streamflow_io.bandwidth.rates import LearnedWindow
from streamflow_io.hints.inheritance import port_path
from streamflow_io.records.learned.database import E, SizeKey, date_of, size_range
from streamflow_io.records.learned.extents import bound_of
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, Proof
from streamflow_io.storage.intermediates.learned_sizes import LearnedSize
from streamflow_io.storage.learned_limits import LearnedLimit
from streamflow_io.wording import counted, size_text

from .console import table

# The most characters of an outcome in a table.
_MOST = 120
# Facts that are times.
_DATES = ("learned", "found", "compared")


class EntryKind(Struct, Generic[E], frozen=True):
    """The presentation of entries of one kind.

    :ivar name: the field in the JSON of a list
    :ivar columns: columns of the table, after the key
    :ivar row: returns the cells of an entry in these columns
    :ivar what: returns the subject of an entry, on one line
    :ivar facts: returns all facts of an entry, except its key, its step and its tool
    :ivar unfolded: the columns that are not folded
    """

    of: type[E]
    name: str
    title: str
    columns: tuple[str, ...]
    row: Callable[[E], tuple[str, ...]]
    what: Callable[[E], str]
    facts: Callable[[E], dict[str, Any]]
    unfolded: tuple[str, ...] = ()

    def table(self, entries: Iterable[tuple[str, E]]) -> Table:
        """Make the table of entries.

        :param entries: each with the beginning of its key
        """
        rows = [(key, *self.row(entry)) for key, entry in entries]
        return table(self.title, ("key", *self.columns), rows, unfolded=("key", *self.unfolded))

    def to_json(self, entry: E) -> dict[str, Any]:
        """Return all facts of an entry, for programs."""
        return {"key": entry.key.digest, "step": entry.step, "tool": entry.key.tool, **self.facts(entry)}

    def lines(self, entry: E) -> Iterator[str]:
        """Yield all facts of an entry for people, those of a list below each other."""
        facts = {name: value for name, value in self.to_json(entry).items() if value not in (None, "", [])}
        width = max(map(len, facts)) + 2
        for name, value in facts.items():
            shown = date_of(value) if name in _DATES else value if isinstance(value, str) else json.dumps(value)
            for number, text in enumerate(map(json.dumps, value) if isinstance(value, list) else [shown]):
                yield f"{f'{name}:' if number == 0 else '':{width}}{text}"


def proven_how(excerpt: int | None, bound: int | None) -> str:
    """Return the outcome of a proof in words.

    :param excerpt: the number of first bytes that were enough. None: the whole file was tried
    :param bound: the largest size in bytes of files for which the proof holds. None: any size
    """
    first = "" if excerpt is None else f" with the first {size_text(excerpt)}"
    return f"proven{first}" if bound is None else f"proven{first} up to {size_text(bound)}"


def _limit_row(limit: LearnedLimit) -> tuple[str, ...]:
    times = "\n".join(f"{entry.constraint:.4g}: {entry.seconds:.3g}" for entry in limit.registry.entries)
    learned = date_of(limit.learned) + _unfinished(limit)
    return limit.step, limit.storage, _sizes(limit.key), times, learned, counted(limit.used, "run")


def _limit_json(limit: LearnedLimit) -> dict[str, Any]:
    registry = limit.registry
    return {
        "storage": limit.storage,
        **_sizes_json(limit.key),
        "learned": limit.learned,
        "ioExecutors": limit.executors,
        "used": limit.used,
        "jobBytes": registry.job_bytes,
        "complete": registry.is_complete,
        "constraints": [
            {"storageBW": one.constraint, "concurrency": one.concurrency, "seconds": one.seconds, "jobs": one.jobs}
            for one in registry.entries
        ],
    }


def _unfinished(limit: LearnedLimit) -> str:
    return "" if limit.registry.is_complete else "; not finished, the next run goes on"


def _sizes(key: SizeKey) -> str:
    lower, upper = size_range(key.size_class)
    return f"{_bytes(lower)} to {_bytes(upper)}" if lower else f"below {_bytes(upper)}"


def _bytes(number: int) -> str:
    """Return a number of bytes as text, for powers of two from 1 MiB."""
    units = ("MiB", "GiB", "TiB", "PiB")
    unit = min((number.bit_length() - 21) // 10, len(units) - 1)
    return f"{number >> 20 + 10 * unit} {units[unit]}"


def _sizes_json(key: SizeKey) -> dict[str, Any]:
    lower, upper = size_range(key.size_class)
    return {
        "conditions": key.storage,
        "sizeClass": key.size_class,
        "inputBytes": {"from": lower, "below": upper},
    }


def _window_row(window: LearnedWindow) -> tuple[str, ...]:
    return window.step, window.key.storage, _sizes(window.key), _seconds(window), date_of(window.learned)


def _window_json(window: LearnedWindow) -> dict[str, Any]:
    of = window.of
    found = {"window": of.window, "ratio": of.ratio, "phases": of.phases}
    return {**_sizes_json(window.key), "learned": window.learned, **found}


def _seconds(window: LearnedWindow) -> str:
    return f"{window.of.window:.3g} s"


def _size_row(size: LearnedSize) -> tuple[str, ...]:
    return size.step, _sizes(size.key), size_text(size.of.written), date_of(size.learned)


def _size_json(size: LearnedSize) -> dict[str, Any]:
    return {**_sizes_json(size.key), "learned": size.learned, "inputs": size.of.inputs, "written": size.of.written}


def _proof_row(proof: Proof) -> tuple[str, ...]:
    # A reason may quote the last lines of a tool; `learned show` prints all of it.
    outcome = shorten(_proof_outcome(proof), _MOST, placeholder=" …")
    return _port(proof), outcome, str(proof.runs), date_of(proof.learned)


def _proof_json(proof: Proof) -> dict[str, Any]:
    return {
        **_tried_json(proof),
        "proven": proof.is_proven,
        "way": proof.way,
        "excerpt": proof.excerpt,
        "extents": [list(extent) for extent in proof.extents],
        "closes": proof.closes,
        "jobs": proof.runs,
        "failures": proof.failures,
    }


def _proof_outcome(proof: Proof) -> str:
    if proof.closes is not None:
        when = f"when it is closed {counted(proof.closes, 'time')}" if proof.closes else "when its job has ended"
        return f"complete {when}"
    if proof.key.kind == "declared":
        bound = bound_of(proof.extents)
        compared = "compared" if bound is None else f"compared up to {size_text(bound)}"
        how = "refuted" if proof.is_refused else "cannot be compared" if proof.reason else compared
        return f"declared, {how}" + (f": {proof.reason}" if proof.reason else "")
    if proof.is_proven:
        return proven_how(proof.excerpt, bound_of(proof.extents))
    again = " (it is rehearsed again)" if proof.may_be_tried_again else ""
    return f"not streamed: {proof.reason}{again}"


def _port(proof: Proof | InconclusiveRehearsal) -> str:
    return port_path(proof.step, proof.key.port)


def _inconclusive_row(found: InconclusiveRehearsal) -> tuple[str, ...]:
    return _port(found), shorten(found.reason, _MOST, placeholder=" …"), date_of(found.learned)


def _tried_json(tried: Proof | InconclusiveRehearsal) -> dict[str, Any]:
    return {
        "kind": tried.key.kind,
        "port": tried.key.port,
        "options": tried.key.options or None,
        "found": tried.learned,
        "reason": tried.reason,
        "bytes": tried.bytes,
    }


LIMITS = EntryKind(
    LearnedLimit,
    "learned",
    "Learned limits",
    ("step", "storage", "input files", "MB/s: seconds", "learned", "used in"),
    _limit_row,
    lambda limit: f"{limit.step} on {limit.storage}, {_sizes(limit.key)}",
    _limit_json,
)
WINDOWS = EntryKind(
    LearnedWindow,
    "windows",
    "Windows with `required`",
    ("step", "storage", "input files", "window", "learned"),
    _window_row,
    lambda window: f"{window.step}, window of {_seconds(window)}, {_sizes(window.key)}",
    _window_json,
)
SIZES = EntryKind(
    LearnedSize,
    "sizes",
    "Sizes of outputs, with a diskLimit or memory",
    ("step", "input files", "written", "learned"),
    _size_row,
    lambda size: f"{size.step}, {size_text(size.of.written)}, {_sizes(size.key)}",
    _size_json,
)
PROOFS = EntryKind(
    Proof,
    "streams",
    "Byte streams",
    ("of", "outcome", "jobs", "found"),
    _proof_row,
    lambda proof: f"{_port(proof)}, {_proof_outcome(proof)}",
    _proof_json,
    unfolded=("of",),
)


INCONCLUSIVE = EntryKind(
    InconclusiveRehearsal,
    "inconclusive",
    "Rehearsals that have shown nothing",
    ("of", "reason", "found"),
    _inconclusive_row,
    lambda found: f"{_port(found)}, rehearsal that has shown nothing",
    _tried_json,
    unfolded=("of",),
)


class MoreKinds:
    """The kinds of entries that a feature adds. There is none here."""

    kinds: tuple[EntryKind[Any], ...] = ()
