"""When a deployment asks for another allocation, and which one it gives back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.runtime.allocation.find_allocation import AskingLimits, Situation, asks, to_give_back

MOMENTS = st.floats(0, 1000)


@st.composite
def situations(draw: st.DrawFn) -> tuple[AskingLimits, Situation]:
    limits = AskingLimits(draw(st.integers(1, 4)), draw(st.none() | st.floats(1, 100)), draw(st.floats(0, 100)))
    running = draw(st.lists(st.none() | MOMENTS, max_size=limits.most))
    is_asked = draw(st.booleans()) and len(running) < limits.most
    asked = draw(st.integers(len(running) + is_asked, limits.most))
    lacks_since = draw(st.none() | MOMENTS)
    waits = lacks_since is not None or draw(st.booleans())
    return limits, Situation(draw(MOMENTS), asked, is_asked, tuple(running), waits, lacks_since)


@given(situations())
def test_no_more_are_asked_for_than_allowed_and_needed(drawn: tuple[AskingLimits, Situation]) -> None:
    limits, situation = drawn
    if asks(limits, situation):
        assert situation.asked < limits.most
        assert not situation.is_asked
        assert situation.waits


@given(situations())
def test_a_job_that_waits_gets_nodes(drawn: tuple[AskingLimits, Situation]) -> None:
    """If none runs, another one is asked for at once; else when the jobs have waited."""
    limits, situation = drawn
    can = replace(situation, asked=limits.most - 1, is_asked=False)
    assert asks(limits, replace(can, idle_since=())) == can.waits
    late = replace(can, idle_since=(None,), lacks_since=can.now - limits.patience - 1)
    assert asks(limits, late)
    assert not asks(limits, replace(late, lacks_since=late.now - limits.patience / 2)) or limits.patience == 0


@given(situations())
def test_only_what_idles_is_given_back(drawn: tuple[AskingLimits, Situation]) -> None:
    limits, situation = drawn
    place = to_give_back(limits, situation)
    if place is None:
        return
    since = situation.idle_since[place]
    assert limits.idle is not None
    assert since is not None
    assert situation.now - since >= limits.idle
    assert not situation.waits
    assert all(other is None or since <= other for other in situation.idle_since)


@given(situations())
def test_jobs_to_come_have_nodes(drawn: tuple[AskingLimits, Situation]) -> None:
    """After an allocation is given back, another one runs, waits in the queue, or may be asked for."""
    limits, situation = drawn
    if to_give_back(limits, situation) is not None:
        left = len(situation.idle_since) - 1 + situation.is_asked
        assert left > 0 or situation.asked < limits.most


@given(situations())
def test_what_is_asked_for_is_not_given_back_at_once(drawn: tuple[AskingLimits, Situation]) -> None:
    limits, situation = drawn
    assert not (asks(limits, situation) and to_give_back(limits, situation) is not None)


@given(situations())
def test_an_idle_allocation_is_given_back_in_the_end(drawn: tuple[AskingLimits, Situation]) -> None:
    limits, situation = drawn
    late = replace(situation, now=10_000.0, waits=False, lacks_since=None)
    spare = late.asked < limits.most or len(late.idle_since) + late.is_asked > 1
    wanted = limits.idle is not None and any(since is not None for since in late.idle_since) and spare
    assert (to_give_back(limits, late) is not None) == wanted
