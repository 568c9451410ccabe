"""Deliveries of a job before its end: events in, instructions out; in tables, and over arbitrary orders of events."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.tokens import directory_value, file_value
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.jobs.delivered import Fail, Item, Value, Warn
from streamflow_io.jobs.delivery import (
    Answer,
    Begun,
    Collect,
    DeliverySource,
    Event,
    Instruction,
    JobDelivery,
    Permitted,
    Put,
    PutOrder,
    Settle,
    Succeeded,
)
from streamflow_io.runtime.protocol import Event as NodeEvent

STREAM, GATE, COMMIT = Delivery.STREAM, Delivery.GATE, Delivery.COMMIT
FILE, FILES, DIRECTORY = OutputKind.FILE, OutputKind.FILES, OutputKind.DIRECTORY
# Why nothing more is asked of the files of a Directory.
NO_TOOL = "no sha1sum"


def output(
    kind: OutputKind = FILE, *deliveries: Delivery, rule: str = "on_close", port: str = "out", **fields: Any
) -> EarlyOutput:
    """One with a rule; a list delivers its elements so, and at commit as a whole."""
    more = {"nFiles": 2} if rule == "on_n_files" else {"fileDeps": ["done"]} if rule == "on_file" else {}
    fields.setdefault("rules", (StreamingRule.model_validate({"port": port, "committed": rule, **more}),))
    if kind is FILES:
        fields = {"elements": deliveries, "deliveries": (COMMIT,), **fields}
    return EarlyOutput(port=port, kind=kind, **{"deliveries": deliveries, **fields})


class Played:
    """Plays a job by a script, answers what is asked, and writes down what follows.

    Words: `begin`, `submit`, `start`, `lift` (the barrier), `permit`, `fail`; `+a` opened, `=a` committed, `!a:2`
    closed twice, `~a` written again, `-a` removed, `#` complete; `;a` and `;` committed and complete at the end only;
    `end:a,b` the job has succeeded with these. `a@x` is the file `a` with the content `x`; before a port other than
    `out` stands its name, as in `log=a`.

    :ivar said: `stream:a`, `gate:a`, `commit:a`: it is delivered so; `commit[1]:a` as an element with this number;
        `order:1,0`; `settle:a`; `?a` is collected; `!...` a failure; `warn ...`
    """

    def __init__(self, *outputs: EarlyOutput, globs: tuple[str, ...] = ("*",), certain: str | None = None) -> None:
        self.outputs = {output.port: output for output in outputs}
        self.tested = JobDelivery(outputs)
        self.said: list[str] = []
        self.attempts = 0
        self.contents: dict[str, str] = {}
        self.has_formats = True
        self._globs = dict.fromkeys(self.outputs, globs)
        self._certain = {} if certain is None else {"out": certain}

    def play(self, script: str) -> list[str]:
        for word in script.split():
            if self.said and self.said[-1].startswith("!"):
                break
            self.step(word)
        return self.said

    def step(self, word: str) -> None:
        for event in self._events(word):
            self.handle(event)

    def _events(self, word: str) -> Iterator[Event]:
        moments = {"submit": "submitted", "lift": "barrier lifted", "fail": "failed"}
        if word in moments:
            yield moments[word]  # type: ignore[misc]
        elif word == "begin":
            self.attempts += 1
            yield Begun(self.directory, self._globs, self._certain)
        elif word == "start":
            yield told("started", pid=1)
        elif word == "permit":
            yield Permitted("out")
        elif word.startswith("end:"):
            yield Succeeded(dict(self._final(word.removeprefix("end:"))))
            if not self.said or not self.said[-1].startswith("!"):
                yield "published"
        else:
            place = next(place for place, char in enumerate(word) if char in "+=!~-#;")
            yield self._told(word[:place] or "out", word[place], word[place + 1 :])

    def _told(self, port: str, what: str, file: str) -> Event:
        if what == "#" or not file:
            return told("complete", port=port, at_end=what == ";")
        file, _, closes = file.partition(":")
        path = {"port": port, "path": f"{self.directory}/{self._write(file)}"}
        match what:
            case "+":
                return told("opened", **path)
            case "=" | ";":
                return told("committed", size=1, at_end=what == ";", **path)
            case "!":
                return told("closed", closes=int(closes), again=int(closes) > 1, **path)
        return told("changed", how="written" if what == "~" else "removed", **path)

    def _write(self, file: str) -> str:
        """The path of a file that may be written with its content."""
        path, _, content = file.partition("@")
        if content or path not in self.contents:
            self.contents[path] = content
        return path

    def _final(self, files: str) -> Iterator[tuple[str, Value]]:
        for text in files.split(";"):
            port, _, names = text.rpartition("=")
            paths = [self._write(name) for name in names.split(",") if name]
            yield port or "out", self.value(self.outputs[port or "out"], paths)

    @property
    def directory(self) -> str:
        return "/out" if self.attempts < 2 else f"/out-{self.attempts}"

    def value(self, output: EarlyOutput, paths: Iterable[str]) -> Value:
        if output.kind is DIRECTORY:
            paths = list(paths)
            items = (Item("dir", directory_value(f"{self.directory}/dir")),) if paths else ()
            if paths == ["untold"]:
                return Value(items, why=NO_TOOL)
            return Value(items, checksums={path: checksum(self.contents[path]) for path in paths})
        items = tuple(self.item(output, path) for path in paths)
        return Value(items, output.kind is FILES)

    def item(self, output: EarlyOutput, path: str) -> Item:
        value = {**file_value(f"{self.directory}/{path}"), "checksum": checksum(self.contents.get(path, ""))}
        beside = [self.item(EarlyOutput(port="", kind=FILE, rules=()), p).value for p in output.secondary_files(path)]
        return Item(path, {**value, **({"secondaryFiles": beside} if beside else {})})

    def handle(self, event: Event) -> None:
        following = self.tested.handle(event)
        for instruction in following:
            self.say(instruction)
            if isinstance(instruction, Fail):
                return
        for instruction in following:
            if isinstance(instruction, Collect):
                self.handle(Answer(instruction, self.answer(instruction.source)))

    def answer(self, source: DeliverySource) -> Value | None:
        output = self.outputs[source.port]
        if source.stage == "early":
            made = directory_value if output.kind is DIRECTORY else file_value
            found = made(f"{self.directory}/{source.path}")
            return Value((Item(str(source.path), found),)) if self.has_formats else None
        if source.path is None:
            return self.value(output, sorted(self.contents))
        return Value((self.item(output, source.path),))

    def say(self, instruction: Instruction) -> None:
        match instruction:
            case Put(source, delivery, number, only):
                what = (
                    source.path if source.path is not None else "*" if only is None else f"({','.join(sorted(only))})"
                )
                place = "" if number is None else f"[{number}]"
                final = "final " if source.stage == "final" else ""
                self.said.append(f"{final}{self._of(source.port)}{delivery.value}{place}:{what}".replace(" ", "-"))
            case PutOrder(_, order):
                self.said.append(f"order:{','.join(map(str, order))}")
            case Settle(port, path):
                self.said.append(f"settle:{self._of(port)}{path or '*'}")
            case Collect(source):
                if source.stage != "early":
                    self.said.append(f"?{self._of(source.port)}{source.path or '*'}")
            case Warn(message):
                self.said.append(f"warn {message}")
            case Fail(message):
                self.said.append(f"!{message}")

    def _of(self, port: str) -> str:
        return "" if port == "out" else f"{port}."


def told(event: str, **fields: Any) -> Any:
    return convert({"event": event, "job": "1", "time": 0, **fields}, NodeEvent)


def checksum(content: str) -> str:
    if content == "untold":
        return "sha1$sh: 1: sha1sum: not found"
    return f"sha1${hashlib.sha1(content.encode()).hexdigest()}"


def played(script: str, *outputs: EarlyOutput, **fields: Any) -> list[str]:
    return Played(*outputs, **fields).play(script)


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    ("tested", "script", "expected"),
    [
        # What is committed is collected, delivered and settled; once.
        (output(FILE, COMMIT), "lift =a", "?a commit:a settle:a"),
        (output(FILE, COMMIT), "lift +a !a:1 =a #", "?a commit:a settle:a"),
        (output(FILE, COMMIT), "lift =a end:a", "?a commit:a settle:a"),
        (output(FILE, COMMIT), "lift end:a", "final-commit:*"),
        (output(FILE, COMMIT, rule="on_termination"), "lift ;a ; end:a", "final-commit:*"),
        # What is streamed is delivered when it is there; its commit is not collected.
        (output(FILE, STREAM), "lift +a", "stream:a"),
        (output(FILE, STREAM), "+a lift +a =a", "stream:a settle:a"),
        (output(FILE, STREAM), "lift +a +b", "stream:a"),
        (output(FILE, STREAM), "lift +a =a end:a", "stream:a settle:a"),
        # A reader that is held at the gate has the file: it is collected, because it is compared at the end.
        (output(FILE, GATE), "lift +a =a end:a", "gate:a ?a settle:a"),
        (output(FILE, STREAM, GATE, COMMIT), "lift +a =a end:a", "stream:a gate:a ?a commit:a settle:a"),
        # Commits wait for the barrier, streams do not.
        (output(FILE, STREAM, COMMIT), "+a =a ~a", "stream:a"),
        (output(FILE, STREAM, COMMIT), "+a =a lift", "stream:a ?a commit:a settle:a"),
        (
            output(FILES, COMMIT),
            "=b =a lift =c",
            "?b ?a commit[0]:b settle:b commit[1]:a settle:a ?c commit[2]:c settle:c",
        ),
        # Outputs without an early reader that are observed.
        (output(FILE, COMMIT), "lift other+a other=a other!a:2 other~a other#", ""),
        # An optional output that never comes.
        (output(FILE, COMMIT), "lift end:", "final-commit:*"),
        # The elements of a list have the numbers in which they came; the order of the list follows it.
        (
            output(FILES, COMMIT),
            "lift =b =a end:a,b",
            "?b commit[0]:b settle:b ?a commit[1]:a settle:a final-commit:* order:1,0",
        ),
        (
            output(FILES, STREAM),
            "lift +b +a =a =b end:a,b,c",
            "stream[0]:b stream[1]:a settle:a settle:b final-stream[2]:c final-commit:* order:1,0,2",
        ),
        (
            output(FILES, STREAM, COMMIT),
            "lift +b +a =a =b end:a,b",
            "stream[0]:b stream[1]:a ?a commit[1]:a settle:a ?b commit[0]:b settle:b final-commit:* order:1,0",
        ),
        (output(FILES, GATE), "lift +b =b end:b", "gate[0]:b ?b settle:b final-commit:* order:0"),
        (
            output(FILES, COMMIT),
            "lift =a end:a,b,a",
            "?a commit[0]:a settle:a final-commit[1]:b final-commit:* order:0,1,2",
        ),
        (output(FILES, COMMIT), "lift end:", "final-commit:* order:"),
        # A list that is committed as a whole has the files that are committed by then.
        (
            output(FILES, rule="on_n_files"),
            "lift +a =a =b +c # end:a,b",
            "settle:a settle:b ?* commit:(a,b)",
        ),
        (
            output(FILES, COMMIT, rule="on_file"),
            "lift =b =a # end:a,b",
            "?b commit[0]:b settle:b ?a commit[1]:a settle:a ?* commit:(a,b) order:1,0",
        ),
        # The number of files is known at the end only.
        (
            output(FILES, COMMIT, rule="on_n_files"),
            "lift =a =b # end:a,b",
            "?a commit[0]:a settle:a ?b commit[1]:b settle:b final-commit:* order:0,1",
        ),
        # Directories: at the gate with their first file, committed as a whole.
        (output(DIRECTORY, GATE, rule="on_n_files"), "lift +dir/x +dir/y", "gate:dir"),
        (output(DIRECTORY, GATE, rule="on_n_files"), "lift +elsewhere", ""),
        (output(DIRECTORY, GATE, rule="on_n_files"), "lift # #", "?* settle:* settle:*"),
        (output(DIRECTORY, COMMIT, rule="on_n_files"), "lift +x # # end:x", "?* commit:* settle:* settle:*"),
        (
            output(DIRECTORY, GATE, COMMIT, rule="on_close:2"),
            "+dir/x # lift end:dir/x",
            "gate:dir ?* commit:* settle:*",
        ),
        (output(DIRECTORY, COMMIT), "lift ; end:x", "final-commit:*"),
        (output(DIRECTORY, STREAM, rule="on_file"), "lift #", "settle:*"),
        # Several outputs.
        (
            (output(FILE, COMMIT), output(FILE, STREAM, port="log")),
            "lift log+l =a log=l end:a;log=l",
            "log.stream:l ?a commit:a settle:a settle:log.l",
        ),
    ],
)
def test_what_is_delivered(tested: EarlyOutput | tuple[EarlyOutput, ...], script: str, expected: str) -> None:
    outputs = tested if isinstance(tested, tuple) else (tested,)
    globs = ("dir",) if outputs[0].kind is DIRECTORY else ("*",)
    assert played(f"begin {script}", *outputs, globs=globs) == words(expected)


@pytest.mark.parametrize(
    ("tested", "script", "expected"),
    [
        # On a queue manager streams of a certain name are there before the job runs; gates when it runs.
        (output(FILE, STREAM, GATE), "submit start +f", "stream:f gate:f"),
        (output(FILE, STREAM, GATE), "start +f", "gate:f stream:f"),
        (output(FILE, COMMIT), "submit start", ""),
        (output(DIRECTORY, GATE), "submit start", "gate:f"),
    ],
)
def test_what_has_a_certain_name_is_delivered_before_it_is_there(
    tested: EarlyOutput, script: str, expected: str
) -> None:
    assert played(f"begin {script}", tested, globs=("f",), certain="f") == words(expected)


WHEN_PROVEN = output(FILE, STREAM, rule="on_termination", when_proven=True)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("lift +f end:f", "final-stream:*"),
        ("lift +f permit end:f", "stream:f"),
        ("lift permit +f end:f", "stream:f"),
        # What a former attempt has opened is not there any more.
        ("lift +f fail begin permit lift +g end:g", "stream:g"),
        ("lift permit fail begin +f lift end:f", "stream:f"),
        ("lift +f end:f permit", "final-stream:*"),
    ],
)
def test_what_streams_when_that_is_proven(script: str, expected: str) -> None:
    assert played(f"begin {script}", WHEN_PROVEN) == words(expected)


@pytest.mark.parametrize("kind", [FILE, FILES])
def test_what_has_a_format_that_cannot_be_told_is_delivered_when_it_can(kind: OutputKind) -> None:
    tested = Played(output(kind, STREAM))
    tested.has_formats = False
    assert tested.play("begin lift +a") == []
    tested.has_formats = True
    tested.play("+a end:a")
    assert tested.said[0] == ("stream:a" if kind is FILE else "stream[0]:a")
    late = Played(output(kind, STREAM))
    late.has_formats = False
    assert late.play("begin lift +a end:a")[0] == ("final-stream:*" if kind is FILE else "final-stream[0]:a")


@pytest.mark.parametrize(
    ("tested", "script", "expected"),
    [
        # Over all attempts, each is delivered once; the next attempt must make the same.
        (output(FILE, COMMIT), "lift =a fail begin lift =a end:a", "?a commit:a settle:a ?a settle:a"),
        (output(FILE, STREAM), "lift +a fail begin +a lift +a end:a", "stream:a"),
        (output(FILE, STREAM), "lift +a =a fail begin lift +a =a end:a", "stream:a settle:a ?a settle:a"),
        (output(FILE, STREAM), "lift +a =a fail fail begin lift", "stream:a settle:a ?a"),
        (output(FILE, STREAM), "lift +a =a ~a fail begin", "stream:a settle:a"),
        (
            output(FILES, COMMIT),
            "lift =b =a fail begin lift =a =b end:a,b",
            "?b commit[0]:b settle:b ?a commit[1]:a settle:a ?a settle:a ?b settle:b final-commit:* order:1,0",
        ),
        (output(DIRECTORY, COMMIT, rule="on_file"), "lift # fail begin lift # end:", "?* commit:* settle:* settle:*"),
        # Commits of an attempt whose barrier was never lifted are void.
        (output(FILE, COMMIT), "=a fail begin lift", ""),
        (output(FILE, COMMIT), "=a begin =b lift", "?b commit:b settle:b"),
    ],
)
def test_attempts(tested: EarlyOutput, script: str, expected: str) -> None:
    said = played(f"begin {script}", tested)
    assert [word for word in said if not word.startswith("!")] == words(expected)


WRITTEN = "of the output `out` was committed by `on_close`, but was written again afterwards"
REMOVED = "of the output `out` was committed by `on_close`, but is not there at the end"
EARLY = "of the output `out`, {} at the end (the tool's `cwl.output.json` says so, or a file had"
ORDER = "a, b were delivered early in this order, but are in another"


@pytest.mark.parametrize(
    ("tested", "script", "expected"),
    [
        (output(FILE, COMMIT), "=a@1 end:a@1", None),
        (output(FILE, COMMIT), "=a@1 end:a@2", f"!a {WRITTEN}"),
        (output(FILE, COMMIT), "=a@1 begin lift =a@2 end:a", f"!a {WRITTEN}"),
        (output(FILE, GATE), "=a@1 end:a@2", f"!a {WRITTEN}"),
        (output(FILE, GATE), "=b end:a", f"!b {REMOVED}"),
        (output(FILE, STREAM), "+a =a@1 end:a@2", None),  # The node runtime tells
        (output(FILE, STREAM), "+a =a@1 fail begin lift end:a@2", f"!a {WRITTEN}"),
        (output(FILE, STREAM), "+a =a@1 fail begin lift end:a@1", None),
        (output(FILE, STREAM), "+a =a ~a end:a", f"!a {WRITTEN}"),
        (output(FILES, STREAM), "+a =a -a end:a", f"!a {REMOVED}"),
        (output(DIRECTORY, GATE), "~d/x end:d/x", f"!d/x {WRITTEN}"),
        (
            output(FILE, COMMIT),
            "=a ~a end:a",
            "warn a of the output `out` was committed by `on_close`, and written",
        ),
        (
            output(FILE, COMMIT),
            "=a !a:2 end:a",
            "warn a of the output `out` was committed by `on_close`, and closed",
        ),
        (
            output(FILE, COMMIT),
            "=a !a:2 ~a end:a",
            "warn a of the output `out` was committed by `on_close`, and writ",
        ),
        (output(FILE, COMMIT), "!a:1 =a end:a", None),
        (output(FILES, COMMIT, rule="on_n_files"), "=a !a:2 end:a", None),
        (
            output(DIRECTORY, COMMIT),
            "!d/x:2 end:d/x",
            "warn d/x of the output `out` was committed by `on_close`, and",
        ),
        (output(DIRECTORY, COMMIT), "!d/x:1 end:d/x", None),
        (
            output(FILE, COMMIT),
            "=a@untold end:a@untold",
            "warn the output `out` was committed, and no later change",
        ),
        (
            output(DIRECTORY, COMMIT, rule="on_file"),
            "+x@1 # end:x@2",
            "!the Directory of the output `out` was committ",
        ),
        (
            output(DIRECTORY, COMMIT, rule="on_file"),
            "+x # end:x,y",
            "!the Directory of the output `out` was committed",
        ),
        (
            output(DIRECTORY, COMMIT, rule="on_file"),
            "+x@1 # fail begin lift # end:x@2",
            "!the Directory of the",
        ),
        (
            output(DIRECTORY, COMMIT, rule="on_file"),
            "+x # end:untold",
            "warn the output `out` was committed, and no later change",
        ),
        (
            output(FILES, rule="on_n_files"),
            "=a =b # end:a,b,c",
            "!the output `out` was committed by `on_n_files` with 2",
        ),
        (output(FILES, rule="on_n_files"), "=a =b # end:b,a", "!" + EARLY.format(ORDER)),
        (
            output(FILE, STREAM, fixed=True),
            "+a end:",
            "!" + EARLY.format("a was delivered early, but the output is empty"),
        ),
        (output(FILES, STREAM), "+a end:b", "!" + EARLY.format("a was delivered early, but the output is b")),
        # The first failure is told, of the first output.
        (
            (output(FILE, COMMIT), output(FILE, COMMIT, port="log")),
            "log=l =a end:a@2;log=l@2",
            f"!a {WRITTEN}",
        ),
    ],
)
def test_what_is_said_at_the_end(
    tested: EarlyOutput | tuple[EarlyOutput, ...], script: str, expected: str | None
) -> None:
    outputs = tested if isinstance(tested, tuple) else (tested,)
    globs = ("d",) if outputs[0].kind is DIRECTORY else ("*",)
    said = [word for word in played(f"begin lift {script}", *outputs, globs=globs) if word.startswith(("!", "warn"))]
    assert len(said) == (expected is not None)
    assert not said or said[0].startswith(str(expected)), said


@pytest.mark.parametrize("delivery", [STREAM, GATE])
def test_another_file_takes_the_place_of_one_that_others_have_begun_to_read(delivery: Delivery) -> None:
    job = Played(output(FILE, delivery))
    job.play("begin lift +file.tmp")
    job.handle(Succeeded(dict(job._final("file"))))
    assert not job.tested.is_replaced("out", "file.tmp")
    job.handle("published")
    assert job.tested.is_replaced("out", "file.tmp")
    assert not job.tested.is_replaced("out", "file")
    assert job.tested.source("out", "file.tmp") == DeliverySource("out", stage="final")
    assert job.said == [f"{delivery.value}:file.tmp"]


@pytest.mark.parametrize(
    ("tested", "script"),
    [
        (output(FILE, STREAM), "=file.tmp end:file"),
        (output(FILE, STREAM), "=file.tmp fail begin lift end:file"),
        (output(FILE, STREAM, fixed=True), "end:"),
        (output(FILE, STREAM, fixed_name=True), "end:"),
        (output(FILE, STREAM, fixed_name=True), "end:file"),
        (output(FILES, STREAM), "end:file"),
        (output(FILE, STREAM, COMMIT), "=file.tmp end:file"),
    ],
    ids=["committed", "committed before", "no file", "no name", "the name counts", "a list", "delivered otherwise"],
)
def test_no_other_file_takes_the_place_of_one_that_others_have(tested: EarlyOutput, script: str) -> None:
    said = played(f"begin lift +file.tmp {script}", tested)
    assert "file.tmp was delivered early, but the output is" in said[-1]


def test_nothing_takes_the_place_of_a_file_on_which_nothing_else_depends() -> None:
    assert played("begin lift +file.tmp end:", output(FILE, STREAM)) == ["stream:file.tmp"]


@pytest.mark.parametrize(("name", "value"), [("basename", "other"), ("secondaryFiles", [{"path": "/out-2/file.idx"}])])
def test_a_file_gets_other_properties_at_the_end(name: str, value: Any) -> None:
    """`cwl.output.json` may say so of a file that others have begun to read."""
    job = Played(output(FILE, STREAM))
    job.play("begin lift +file")
    job.handle(Succeeded({"out": Value((file("file", **{name: value}),))}))
    job.handle("published")
    assert job.tested.is_replaced("out", "file")
    assert job.said == ["stream:file"]


def test_a_file_of_the_same_name_elsewhere_takes_the_place_of_one_whose_name_counts() -> None:
    tested = output(FILE, STREAM, fixed_name=True)
    assert played("begin lift +draft/file end:final/file", tested) == ["stream:draft/file"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("=a.c =a.c.i =a.d", "settle:a.c settle:a.c.i settle:a.d ?a.c commit[0]:a.c settle:a.c"),
        ("=a.c.i =a.d =a.c", "settle:a.c.i settle:a.d ?a.c commit[0]:a.c settle:a.c"),
        ("=b.d =a.c =a.d", "settle:b.d settle:a.c settle:a.d"),
        ("=a.c =a.d begin lift =a.c.i", "settle:a.c settle:a.d settle:a.c.i"),
    ],
)
def test_a_file_is_committed_with_its_secondary_files(script: str, expected: str) -> None:
    tested = output(FILES, COMMIT, secondary=(".i", "^.d"))
    assert played(f"begin lift {script}", tested, globs=("*.c",)) == words(expected)


def test_a_list_has_rules_for_some_of_its_files() -> None:
    rules = [{"port": "out", "files": ["*.early"], "committed": "on_close"}, {"port": "out", "files": ["*.late"]}]
    tested = output(FILES, COMMIT, rules=tuple(StreamingRule.model_validate(rule) for rule in rules))
    said = played("begin lift =1.early ;2.late end:2.late,1.early@x", tested)
    assert said == [
        *words("?1.early commit[0]:1.early settle:1.early"),
        "!1.early of the output `out` was committed by `on_close`, but was written again afterwards",
    ]


@pytest.mark.parametrize(
    ("tested", "globs", "script", "expected"),
    [
        (output(FILE, COMMIT), ("a",), "=a", ["a"]),
        (output(FILE, GATE), ("a",), "+a =a", ["a"]),
        (output(FILE, COMMIT), ("a",), "", []),
        (output(FILE, COMMIT), ("a", "b"), "=a", []),
        (output(FILE, STREAM), ("a",), "+a =a", []),
        (output(FILES, COMMIT), ("a",), "=a", []),
        (output(FILE, COMMIT, secondary=(".i",)), ("a",), "=a =a.i", []),
        (output(FILE, COMMIT), (), "", []),
    ],
)
def test_what_is_not_collected_twice(
    tested: EarlyOutput, globs: tuple[str, ...], script: str, expected: list[str]
) -> None:
    job = Played(tested, globs=globs)
    job.play(f"begin lift {script}")
    assert [source.path for source in job.tested.unchanged()] == expected


def test_what_an_attempt_has_committed_is_final_for_its_readers() -> None:
    job = Played(output(FILE, STREAM), output(DIRECTORY, GATE, rule="on_file", port="dir"))
    job.play("begin =a")
    first = job.tested.committed
    assert first == set()
    job.play("lift dir#")
    assert first == {("out", "a"), ("dir", None)}
    job.play("begin")
    assert job.tested.committed == set()
    assert first == {("out", "a"), ("dir", None)}


def file(path: str, **fields: Any) -> Item:
    return Item(path, {**file_value(f"/out-2/{path}"), "size": 1, "checksum": checksum(""), **fields})


def indexed(path: str, *beside: str) -> Item:
    """A file with secondary files."""
    return file(path, secondaryFiles=[file(name).value for name in beside])


@pytest.mark.parametrize(
    ("early", "final", "expected"),
    [
        (file("a"), file("a", format="f"), None),  # The format was not told
        (file("a", format="e"), file("a", format="f"), "a was delivered early with the format e, but has the format f"),
        (file("a"), file("a", basename="b"), "a was delivered early with the basename a, but has the basename b"),
        (file("a"), Item("/in/a", file("a").value), "a was delivered early, but the output is /in/a at the end"),
        (indexed("d/a", "d/a.i"), indexed("d/a", "d/a.i"), None),
        (indexed("a", "a.i", "b"), indexed("a", "a.i"), "b was delivered early, but the output is a, a.i at the end"),
        (indexed("a"), indexed("a", "a.i"), "a was delivered early without a.i"),
    ],
)
def test_what_is_compared_of_what_was_delivered(early: Item, final: Item, expected: str | None) -> None:
    tested = JobDelivery([output(FILE, COMMIT)])
    tested.handle(Answer(Collect(DeliverySource("out", early.path), (COMMIT,)), Value((early,))))
    found = [each.message for each in tested.handle(Succeeded({"out": Value((final,))})) if isinstance(each, Fail)]
    assert (expected is None) == (found == [])
    assert not found or found[0].startswith(f"of the output `out`, {expected}")


STEPS = st.sampled_from(
    [f"{what}{name}" for what in "+=!~" for name in ("a", "b", "c")]
    + ["#", "submit", "start", "lift", "permit", "retry", "cancel"]
)
OUTPUTS = st.sampled_from(
    [
        output(kind, *deliveries, rule=rule)
        for kind in (FILE, FILES, DIRECTORY)
        for deliveries in ((STREAM,), (GATE,), (COMMIT,), (STREAM, COMMIT), (STREAM, GATE, COMMIT))
        for rule in ("on_close", "on_n_files", "on_termination", "on_close:2")
        if kind is not FILE or rule != "on_n_files"
    ]
    + [WHEN_PROVEN]
)


class Interleaved(Played):
    """Answers later, or never: an attempt may end before it is answered.

    :ivar open: what is asked, and not answered
    """

    def __init__(self, *outputs: EarlyOutput) -> None:
        super().__init__(*outputs, certain="a")
        self.open: list[Collect] = []
        self.lifted = False

    def handle(self, event: Event) -> None:
        for instruction in self.tested.handle(event):
            if isinstance(instruction, Collect):
                self.open.append(instruction)
            if not self.lifted:
                early = isinstance(instruction, Collect | Put) and instruction.source.stage == "early"
                assert early, f"{instruction} before the barrier"
            self.say(instruction)

    def answer_one(self, which: int) -> None:
        if self.open:
            asked = self.open.pop(which % len(self.open))
            self.handle(Answer(asked, self.answer(asked.source)))

    def retry(self) -> None:
        # What has failed is answered before the next attempt begins.
        self.lifted = True
        self.step("fail")
        kept = [asked for asked in self.open if asked.source.stage == "failed"]
        for asked in kept:
            self.handle(Answer(asked, self.answer(asked.source)))
        self.open, self.lifted = [], False
        self.step("begin")


@given(OUTPUTS, st.lists(st.tuples(STEPS, st.lists(st.integers(0, 5), max_size=2)), max_size=20), st.randoms())
def test_in_any_order_and_over_all_attempts(
    tested: EarlyOutput, script: list[tuple[str, list[int]]], random: Any
) -> None:
    """Everything is delivered once, in each way; elements have numbers of their own, which the order says."""
    job = Interleaved(tested)
    job.step("begin")
    for word, answers in script:
        if word == "lift":
            job.lifted = True
            job.step(word)
        elif word in ("retry", "cancel"):
            job.retry()
        else:
            job.step(f"{word}:2" if word.startswith("!") else word)
        for which in answers:
            job.answer_one(which)
    job.lifted = True
    job.step("lift")
    while job.open:
        job.answer_one(random.randrange(9))
    names = sorted(job.contents)
    final = job.value(tested, names if tested.kind is not FILE else names[:1])
    if any(isinstance(found, Fail) for found in job.tested.handle(Succeeded({"out": final}))):
        return
    job.handle("published")
    said = [word.removeprefix("final-") for word in job.said]
    delivered = Counter(
        word.split(":")[0] + (":" + word.split(":")[1] if "[" in word else "")
        for word in said
        if word.startswith(("stream", "gate", "commit"))
    )
    expected = {way.value for way in tested.deliveries}
    assert max(delivered.values(), default=1) == 1
    assert {name for name in delivered if "[" not in name} == expected
    if tested.kind is FILES:
        numbers: dict[str, set[str]] = {}
        for name in delivered:
            if "[" in name:
                numbers.setdefault(name.split(":")[1], set()).add(name.split("[")[1].split("]")[0])
        assert set(numbers) == set(names)
        assert all(len(found) == 1 for found in numbers.values())
        (order,) = [word.removeprefix("order:") for word in said if word.startswith("order:")]
        assert order == ",".join(next(iter(numbers[name])) for name in names)
        assert sorted(map(int, filter(None, order.split(",")))) == list(range(len(names)))


@given(st.permutations(["a", "b", "c"]), st.permutations(["a", "b", "c"]), st.sampled_from([None, "a", "b", "c"]))
def test_a_commit_is_final_over_attempts(first: list[str], second: list[str], changed: str | None) -> None:
    script = [f"={name}@1" for name in first], [f"={name}@{2 if name == changed else 1}" for name in second]
    for tested in (output(FILES, COMMIT), output(FILES, GATE)):
        said = played(" ".join(["begin lift", *script[0], "fail begin lift", *script[1], "end:a,b,c"]), tested)
        failed = [word for word in said if word.startswith("!")]
        assert failed == ([] if changed is None else [f"!{changed} {WRITTEN}"])
