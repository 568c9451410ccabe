"""The jobs of deployments whose hosts come and go, and the quotes of the commands on them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.deployment import ExecutionLocation

from streamflow_io._streamflow import HostJobs, quoted
from streamflow_io.engine.room_check import HostUse

NODES = [ExecutionLocation(name, "nodes") for name in ("n1", "n2")]


def test_a_node_is_busy_until_its_last_job_has_ended() -> None:
    use = HostUse()
    use.placed("/a/0", NODES)
    use.placed("/b/0", NODES[:1])
    use.freed("/a/0")
    assert use.of("nodes") == HostJobs(frozenset({"n1"}), waits=False, lacks=False)
    use.freed("/b/0")
    assert use.of("nodes").busy == frozenset()
    assert use.of("others").busy == frozenset()


def test_a_job_lacks_something_while_it_waits() -> None:
    use = HostUse()
    use.lacks("nodes", "/a/0")
    assert not use.of("nodes").lacks
    with use.waiting("nodes", "/a/0"):
        assert use.of("nodes") == HostJobs(frozenset(), waits=True, lacks=False)
        use.lacks("nodes", "/a/0")
        assert use.of("nodes").lacks
        assert not use.of("others").waits
    assert use.of("nodes") == HostJobs(frozenset(), waits=False, lacks=False)


@given(st.text(st.characters(exclude_characters="\0"), min_size=1))
def test_an_argument_stays_one_word(name: str) -> None:
    words = ["ln", "-snf", f"/a/{name}", f"/b/{name}"]
    assert shlex.split(" ".join(quoted(words))) == words


@pytest.mark.parametrize("words", [["test", "-e", "'a b'"], ["cd /a && ls"], ["tee", "/a", ">", "/dev/null"]])
def test_other_words_stay_as_they_are(words: list[str]) -> None:
    assert quoted(words) == words
