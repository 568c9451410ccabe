"""The values of the vocabulary: bandwidth constraints, commit rules."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamflow_io.hints.bandwidth import (
    AutoConstraint,
    Bounds,
    RequiredConstraint,
    StaticConstraint,
    StorageBW,
    parse_storage_bw,
)
from streamflow_io.hints.commit import KINDS, MOST, CommitRule, parse_commit_rule

numbers = st.floats(min_value=1e-6, max_value=1e12, allow_nan=False)
bounds = st.builds(
    lambda low, high, delta: Bounds(min(low, high), max(low, high), delta),
    numbers,
    numbers,
    st.floats(min_value=1.001, max_value=1e6),
)
constraints = (
    st.builds(StaticConstraint, numbers)
    | st.builds(AutoConstraint, st.none() | bounds)
    | st.builds(RequiredConstraint, st.floats(1, 1e6))
)
commit_rules = st.sampled_from(KINDS).map(CommitRule) | st.builds(
    CommitRule, st.just("on_close"), st.integers(min_value=1, max_value=MOST)
)


@settings(deadline=None)
@given(constraints)
def test_storage_bw_survives_its_text(constraint: StorageBW) -> None:
    assert parse_storage_bw(str(constraint)) == constraint


@settings(deadline=None)
@given(commit_rules)
def test_commit_rule_survives_its_text(rule: CommitRule) -> None:
    assert parse_commit_rule(str(rule)) == rule


@settings(deadline=None)
@given(st.text() | st.integers() | st.floats() | st.booleans() | st.none())
def test_parsers_return_or_raise_value_error(value: object) -> None:
    for parse in (parse_storage_bw, parse_commit_rule):
        with contextlib.suppress(ValueError):
            parsed = parse(value)
            assert parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("value", "constraint"),
    [
        (20, StaticConstraint(20)),
        (0.5, StaticConstraint(0.5)),
        ("20", StaticConstraint(20)),
        ("auto", AutoConstraint()),
        ("auto(10,50,4)", AutoConstraint(Bounds(10, 50, 4))),
        (" auto( 10 , 10, 1.5 ) ", AutoConstraint(Bounds(10, 10, 1.5))),
        ("required", RequiredConstraint(1.1)),
        ("required(2)", RequiredConstraint(2.0)),
        (" required( 1.5 ) ", RequiredConstraint(1.5)),
    ],
)
def test_storage_bw(value: object, constraint: StorageBW) -> None:
    assert parse_storage_bw(value) == constraint


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "0 MB/s is not above 0"),
        (-3, "-3 MB/s is not above 0"),
        (float("inf"), "inf MB/s is not above 0"),
        (10**400, "a number of MB/s must be finite"),
        (float("nan"), "nan MB/s is not above 0"),
        (True, "True is no storage bandwidth"),
        ("fast", "'fast' is no storage bandwidth"),
        ("auto(10,50)", "'auto(10,50)' is no storage bandwidth"),
        ("auto(50,10,4)", "min 50 is above max 10"),
        ("auto(10,50,1)", "delta 1 is not above 1"),
        ("auto(0,50,2)", "min 0 is not above 0"),
        ("auto(1,1e999,2)", "min, max and delta must be finite"),
        (1e300, "1e+300 MB/s is above 1e+12 MB/s"),
        ("auto(1,1e300,2)", "max 1e+300 is above 1e+12"),
        ("auto(1e-300,1,2)", "min 1e-300 is below 1e-06"),
        ("auto(1,2,1.0000001)", "delta 1.0000001 is below 1.001"),
        ("required(1e999)", "'required(1e999)' is no storage bandwidth"),
        ("required(2,)", "'required(2,)' is no storage bandwidth"),
        ("required()", "'required()' is no storage bandwidth"),
        ("required(fast)", "'required(fast)' is no storage bandwidth"),
        ("20\n\n30", "'20\\n\\n30' is no storage bandwidth"),
    ],
)
def test_wrong_storage_bw(value: object, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the text is compared as a whole)
        parse_storage_bw(value)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("on_termination", CommitRule("on_termination")),
        ("on_close", CommitRule("on_close", 1)),
        ("on_close:1", CommitRule("on_close", 1)),
        ("on_close:12", CommitRule("on_close", 12)),
        ("on_file", CommitRule("on_file")),
        ("on_n_files", CommitRule("on_n_files")),
    ],
)
def test_commit_rule(value: str, rule: CommitRule) -> None:
    assert parse_commit_rule(value) == rule


@pytest.mark.parametrize(
    "value",
    ["", "onclose", "on_close:", "on_close:0", "on_close:-1", "on_close:1.5", "on_close:x", "on_file:2", 1, None],
)
def test_wrong_commit_rule(value: object) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_commit_rule(value)


def test_no_more_closes_than_all_parts_can_count() -> None:
    assert parse_commit_rule(f"on_close:{MOST}") == CommitRule("on_close", MOST)
    for number in (MOST + 1, 99999999999999999999, "9" * 5000):
        with pytest.raises(ValueError, match=r"^9999999999|^1000000000 closes are more than 999999999$"):
            parse_commit_rule(f"on_close:{number}")
