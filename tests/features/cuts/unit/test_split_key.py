"""The validity of verdicts about declared splits, and when there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.features.cuts.split_key import (
    Compared,
    Declaration,
    InconclusiveError,
    NoRuleError,
    compared,
    inputs_digest,
    rule_of,
    verdict_key,
)
from streamflow_io.hints.sessions import SessionRule

EVERY = SessionRule(port="chunks", of="reads", records="lines", every=2, names="chunk-%02d.txt")
PARTS = SessionRule(port="chunks", of="reads", records="lines", parts="n", names="chunk-%02d.txt", first=0)


def file(name: str = "reads.fq", content: str = "1", **more: Any) -> dict[str, Any]:
    return {"class": "File", "path": f"/{name}", "basename": name, "checksum": f"sha1${content}", "size": 9, **more}


def digest(inputs: Mapping[str, Any], rule: SessionRule = EVERY, bound: bool = False) -> str:
    return inputs_digest(Declaration(rule=rule, tool="t", is_bound=bound), inputs)


def test_the_rule_of_a_job() -> None:
    assert json.loads(rule_of(EVERY, {})) == {"records": "lines", "every": 2, "names": "chunk-%02d.txt"}
    told = {"records": "lines", "parts": 3, "names": "chunk-%02d.txt", "first": 0}
    assert json.loads(rule_of(PARTS, {"n": 3})) == told
    custom = {"header": {"prefix": "#"}, "record": {"begin": ">"}}
    rule = SessionRule.model_validate(EVERY.model_dump(exclude_none=True) | {"records": custom})
    assert json.loads(rule_of(rule, {}))["records"] == custom
    for value in (None, 0, -1, True, "3", 2.5):
        with pytest.raises(NoRuleError, match="its input `n`, the number of parts, is "):
            rule_of(PARTS, {"n": value})


@pytest.mark.parametrize(
    "other",
    [
        {"reads": file("reads.fq.gz"), "n": 3},
        {"reads": file(), "n": 4},
        {"reads": file(), "n": 3, "more": None},
        {"reads": file(), "n": [3]},
        {"reads": file(), "n": "3"},
        {"reads": file(), "n": 3, "index": file("a")},
        {"reads": file(), "n": 3, "index": {"format": file("a")}},
    ],
)
def test_jobs_that_may_cut_elsewhere(other: Mapping[str, Any]) -> None:
    assert digest({"reads": file(), "n": 3}) != digest(other)


def test_other_files() -> None:
    def index(content: str, beside: str = "1") -> str:
        return digest({"reads": file(), "index": file("a", content, secondaryFiles=[file("b", beside)])})

    assert index("1") != index("2")
    assert index("1") != index("1", "2")
    one, other = {"reads": file(), "n": 3}, {"reads": file("others.fq", "2"), "n": 3}
    assert digest(one) == digest(other), "one verdict holds for all files"
    for bound in ({"rule": PARTS}, {"bound": True}, {"rule": EVERY.model_copy(update={"every": None, "chunk": 1})}):
        assert digest(one, **bound) != digest(other, **bound)  # type: ignore[arg-type]
        assert digest(one, **bound) == digest({**one, "reads": {**file(), "path": "/elsewhere/reads.fq"}}, **bound)  # type: ignore[arg-type]


def test_what_nobody_knows() -> None:
    with pytest.raises(NoRuleError, match="its input `db` is a Directory"):
        digest({"reads": file(), "db": [{"class": "Directory", "path": "/db"}]})
    with pytest.raises(NoRuleError, match="its input `index` has no checksum"):
        digest({"reads": file(), "index": {"class": "File", "path": "/index"}})


def test_tools_and_rules_have_their_own_verdicts() -> None:
    inputs = {"reads": file(), "n": 3}
    key = verdict_key(Declaration(rule=PARTS, tool="t"), inputs)
    assert key != verdict_key(Declaration(rule=PARTS, tool="u"), inputs)
    assert key != verdict_key(Declaration(rule=PARTS, tool="t"), {**inputs, "n": 4})
    assert key != verdict_key(Declaration(rule=EVERY, tool="t"), inputs)
    assert key == verdict_key(Declaration(rule=PARTS, tool="t"), dict(reversed(inputs.items())))


def said(*parts: tuple[str, int]) -> str:
    return "\n".join(json.dumps({"path": name, "extents": [[0, length]] if length else []}) for name, length in parts)


def judge(parts: list[tuple[str, int]], written: list[dict[str, Any]], rule: str = "{}") -> Compared:
    return compared(rule, said(*parts), ["*.txt"], written, "/out")


def written(*names: str, directory: str = "/out") -> list[dict[str, Any]]:
    return [{"class": "File", "basename": name, "path": f"{directory}/{name}"} for name in names]


def test_what_is_the_same() -> None:
    parts = [("a.txt", 1), ("c", 1), ("b.txt", 1)]
    assert judge(parts, written("a.txt", "b.txt")) == (3, None), "in the order of the glob, and what it finds"


@pytest.mark.parametrize(
    ("files", "difference"),
    [
        (written("b.txt", "a.txt"), "element 1 of the output is b.txt, the rule gives a.txt"),
        (written("a.txt"), "the output has 1 element, the rule gives 2"),
        (written("a.txt", "b.txt", "c.txt"), "the output has 3 elements, the rule gives 2"),
        (written("a.txt", "b.txt", directory="/out/x"), "/out/x/a.txt is not in the output directory of the job"),
        ([written("a.txt")[0] | {"secondaryFiles": [{}]}, *written("b.txt")], "a.txt has secondaryFiles"),
    ],
)
def test_what_is_different(files: list[dict[str, Any]], difference: str) -> None:
    assert judge([("a.txt", 1), ("b.txt", 1)], files) == (2, difference)


@given(st.lists(st.integers(0, 2), max_size=4))
def test_one_part_with_bytes_proves_nothing(lengths: list[int]) -> None:
    names = [f"{number}.txt" for number in range(len(lengths))]
    parts = list(zip(names, lengths, strict=True))
    if sum(map(bool, lengths)) < 2:
        with pytest.raises(InconclusiveError):
            judge(parts, written(*names))
        assert judge(parts, written(*names, "more.txt")).difference is not None
        assert judge(parts, written(*names), '{"parts": 1}') == (len(names), None)
    else:
        assert judge(parts, written(*names)) == (len(names), None)
