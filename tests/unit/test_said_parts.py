"""Messages of a program about parts: once and for all, and in the order of their list."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert
from streamflow.data.remotepath import LocalStreamFlowPath

from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.tokens import file_value
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.jobs.delivered import Fail, Item, Value
from streamflow_io.jobs.delivery import Answer, Begun, Collect, JobDelivery, Put, PutOrder, Succeeded
from streamflow_io.parts.said_parts import SaidParts, in_order
from streamflow_io.runtime.protocol import FilePart, PartEvent, PartInput
from streamflow_io.runtime.wire import parse_event, part_of, text_of

NAMES = st.text(st.sampled_from("ab1.-_"), min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
GLOBS = st.lists(st.sampled_from(["*", "a*", "*1", "[ab]*", "?", "a", "*.a"]), min_size=1, max_size=3)
PIECES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)) | st.sampled_from(["VA==", "Cg=="]), max_size=2)


def said(name: str, pieces: Any = ((0, 1),), digest: str | None = None) -> PartEvent:
    size = sum(1 if isinstance(piece, str) else piece[1] for piece in pieces)
    identity = {"device": 1, "inode": 2, "size": 9, "mtime": 3}
    fields: dict[str, Any] = {
        "job": "1",
        "time": 0,
        "port": "chunks",
        "number": 1,
        "name": name,
        "size": size,
        "path": "/in/reads",
    }
    return convert({"event": "part", **fields, "identity": identity, "pieces": pieces, "digest": digest}, PartEvent)


def test_an_event_as_it_is_printed() -> None:
    event = parse_event(
        b'{"job":"1","event":"part","port":"chunks","number":1,"name":"chunk-0001.fq","size":4194309,"path":"/data/all.fq",'
        b'"identity":{"device":65024,"inode":131,"size":74395136,"mtime":1790000000123456789},'
        b'"pieces":[[0,5120],[69206016,4189184],"VEVYVAo="],"time":1790000001.5}'
    )
    assert isinstance(event, PartEvent)
    assert event.pieces == ((0, 5120), (69206016, 4189184), "VEVYVAo=")
    part = part_of(event)
    told = PartInput(name="chunk", port="chunks", part=part, target={"file": "/in/chunk-0001.fq"})
    assert convert(json.loads(text_of(told))["part"], FilePart) == part
    assert event.identity.mtime == 1790000000123456789


@settings(max_examples=30)
@given(GLOBS, st.sets(NAMES, max_size=6))
def test_the_order_is_that_in_which_streamflow_finds_files(globs: list[str], names: set[str]) -> None:
    async def find(directory: LocalStreamFlowPath) -> list[str]:
        found: dict[str, None] = {}
        for pattern in globs:  # As `streamflow.cwl.utils.expand_glob` does it.
            found.update(dict.fromkeys(path.name for path in sorted([path async for path in directory.glob(pattern)])))
        return list(found)

    with TemporaryDirectory() as directory:
        for name in names:
            Path(directory, name).touch()
        found = asyncio.run(find(LocalStreamFlowPath(directory, context=cast(Any, None))))
        assert in_order(globs, names) == found


@settings(max_examples=50)
@given(st.lists(st.lists(st.tuples(NAMES, PIECES)), min_size=1, max_size=3))
def test_what_is_said_is_said_once_and_for_all(attempts: list[list[tuple[str, Any]]]) -> None:
    parts, first = SaidParts(), dict[str, tuple[Any, ...]]()
    for attempt in attempts:
        parts.begin()
        for name, pieces in attempt:
            wrong = parts.say(said(name, pieces))
            assert (wrong is None) is (first.setdefault(name, tuple(pieces)) == tuple(pieces))
        names = {name for name, _ in attempt}
        assert parts.said.keys() == names
        assert (parts.unsaid() is None) is (names == first.keys())


def test_other_bytes_are_another_part() -> None:
    parts = SaidParts()
    assert parts.say(said("a", digest="01")) is None
    parts.begin()
    assert parts.say(said("a", digest="01")) is None
    parts.begin()
    wrong = "the part a has other bytes than before: the file that is split was written differently"
    assert parts.say(said("a", digest="02")) == wrong


OUTPUT = EarlyOutput(
    port="chunks",
    kind=OutputKind.FILES,
    rules=(StreamingRule(port="chunks"),),
    deliveries=(Delivery.COMMIT,),
    elements=(Delivery.PART,),
    of="reads",
)


class Played:
    """A job that says parts: what follows, as text."""

    def __init__(self, *globs: str) -> None:
        self.tested, self.globs, self.said = JobDelivery([OUTPUT]), globs, list[str]()

    def begin(self) -> None:
        self.handle(Begun("/out", {"chunks": self.globs}, {}))

    def handle(self, event: Any) -> None:
        for instruction in self.tested.handle(event):
            match instruction:
                case Collect(source, _):
                    assert source.path is not None
                    self.handle(Answer(instruction, Value((Item(source.path, file_value(f"/out/{source.path}")),))))
                case Put(source, delivery, number):
                    self.said.append(f"{delivery.value} {source.path} {number}")
                case PutOrder(_, order):
                    self.said.append(f"order {list(order)}")
                case Fail(message):
                    self.said.append(message)

    def end(self, *names: str) -> None:
        items = tuple(Item(name, file_value(f"/out/{name}")) for name in names)
        self.handle(Succeeded({"chunks": Value(items, is_list=True)}))
        self.handle("published")


def test_elements_before_the_list() -> None:
    job = Played("*")
    job.begin()
    for name in ("b", "a"):
        job.handle(said(name))
        job.handle(said(name))
    assert job.said == ["part b 0", "part a 1"]
    job.end("a", "b")
    assert job.said[2:] == ["commit None None", "order [1, 0]"]


def test_what_no_glob_finds_is_no_element() -> None:
    job = Played("*.fq")
    job.begin()
    job.handle(said("a.txt"))
    job.handle(said("a.fq"))
    assert job.said == ["part a.fq 0"]


def test_another_attempt() -> None:
    job = Played()
    for _ in range(2):
        job.begin()
        job.handle(said("a"))
    job.handle(said("b"))
    job.end("a", "b")
    assert job.said == ["part a 0", "part b 1", "commit None None", "order [0, 1]"]


def test_another_attempt_says_something_else() -> None:
    job = Played("*")
    for length in (1, 2):
        job.begin()
        job.handle(said("a", [(0, length)]))
    assert job.said[1:] == [
        "the part a is another one than before: 2 bytes, [0, 2], and was 1 byte, [0, 1]; other jobs have the part "
        "already, by the rule {port: chunks, of: reads} of `sfio:ReadSession`"
    ]


def test_another_attempt_says_less() -> None:
    job = Played("*")
    job.begin()
    job.handle(said("a"))
    job.begin()
    job.handle(Succeeded({"chunks": Value((Item("a", file_value("/out/a")),), is_list=True)}))
    assert job.said[1].startswith(
        "the part a was reported by an earlier attempt, and is missing now; other jobs have the part already"
    )
