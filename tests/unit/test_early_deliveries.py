"""What was delivered early is compared with what the output is in the end."""

from __future__ import annotations

from typing import Any

import pytest
from streamflow.core.workflow import Token
from streamflow.workflow.token import ListToken

from streamflow_io.graph import OutputKind
from streamflow_io.run.early import EarlyDeliveries
from streamflow_io.run.outputs import EarlyOutput
from streamflow_io.run.secondary import Whole
from streamflow_io.run.tokens import StreamSource, StreamToken, file_value


def streamed(path: str) -> Token:
    return StreamToken(file_value(f"/out/{path}"), StreamSource("/a/0", "out", path))


def file(path: str, directory: str = "/out-2", **fields: Any) -> Token:
    value = file_value(f"{directory}/{path}")
    return Token({**value, "size": 1, "checksum": "sha1$0", **fields})


def indexed(path: str, *beside: str) -> Token:
    """A file with secondary files."""
    return file(path, secondaryFiles=[file(name).value for name in beside])


def listed(*tokens: Token) -> Token:
    return ListToken(list(tokens))


@pytest.mark.parametrize(
    ("early", "final", "expected"),
    [
        ([], file("a"), None),
        ([streamed("a")], file("a"), None),
        ([streamed("a")], file("./a"), None),
        ([streamed("a")], file("b"), "a was delivered early, but the output is b at the end"),
        ([streamed("a")], file("in", "/in"), "a was delivered early, but the output is /in/in at the end"),
        ([streamed("a")], Token(None), "a was delivered early, but the output is empty at the end"),
        ([streamed("a")], None, "a was delivered early, but the output is empty at the end"),
        ([streamed("a")], Token("text"), "a was delivered early, but the output is empty at the end"),
        ([streamed("a")], file("a", format="f"), None),  # It was not told
        ([file("a", format="e")], file("a", format="f"), "a was delivered early with the format e, but has the format"),
        ([streamed("a")], file("a", basename="b"), "a was delivered early with the basename a, but has the basename b"),
        ([file("a")], file("a", checksum="sha1$1"), None),  # `Commits` says what happened to it
        ([streamed("b"), streamed("a")], listed(file("a"), file("b"), file("c")), None),
        ([streamed("a")], listed(), "a was delivered early, but the output is empty at the end"),
        ([listed(file("a"), file("b"))], listed(file("a"), file("c"), file("b")), None),
        ([indexed("d/a", "d/a.i")], indexed("d/a", "d/a.i"), None),
        ([indexed("a", "a.i", "b")], indexed("a", "a.i"), "b was delivered early, but the output is a, a.i at the end"),
        ([indexed("a")], indexed("a", "a.i"), "a was delivered early without a.i"),
        ([listed(file("a"), file("b"))], listed(file("b"), file("a")), "a, b were delivered early in this order"),
    ],
)
def test_the_difference(early: list[Token], final: Token | None, expected: str | None) -> None:
    deliveries = EarlyDeliveries()
    for token in early:
        deliveries.add(token, "/out-2")
    found = deliveries.difference(final, "/out-2")
    assert found == expected if found is None or expected is None else found.startswith(expected)


def test_a_file_is_whole_with_its_secondary_files() -> None:
    output = EarlyOutput(port="out", kind=OutputKind.FILES, rules=(), secondary=(".i", "^.d"))
    assert output.secondary_files("d.x/a.b.c") == ("d.x/a.b.c.i", "d.x/a.b.d")
    whole = Whole(output, ["*.c"])
    steps = ["a.c.i", "other", "a.c", "b.c", "a.d", "b.d", "b.c.i", "b.c.i"]
    assert [whole.committed(path) for path in steps] == [[], [], [], [], ["a.c"], [], ["b.c"], ["b.c"]]
    alone = Whole(EarlyOutput(port="out", kind=OutputKind.FILE, rules=()), ["a"])
    assert [alone.committed(path) for path in ("b", "a")] == [[], ["a"]]
