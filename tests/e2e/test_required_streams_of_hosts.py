"""Byte streams between SSH hosts that are kept to what is required of them."""

from __future__ import annotations

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.sites import Site, apart
from tests.e2e.test_streaming import SMALL, check_gone, check_nothing_fell_back

MEGABYTES = 10
BURSTS = 4
EVERY = 3.0


def bursts() -> Document:
    """a writes a burst each three seconds on one host, and ends at once after the last; b reads them on the other."""
    write = f"yes burst $i | head -c {MEGABYTES}000000"
    script = f"for i in $(seq {BURSTS}); do {write}; [ $i = {BURSTS} ] || sleep {EVERY}; done > out.bin"
    rule = {"port": "out", "mode": "no_update", "streamBW": "required"}
    made = tool(script, {}, {"out": found("out.bin")}, [streaming(rule)], requirements=SMALL)
    read = tool("cksum < $file", {"file": streamable()}, {"out": "stdout"}, stdout="sum.txt", requirements=SMALL)
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"sum": "b/out"})


def given(site: Site) -> list[Document]:
    """The bursts that b was given, in their order."""
    requests = [one for one in site.records("request") if one["kind"] == "stream"]
    return sorted(requests, key=lambda one: int(one["phase"]))


def was_held(burst: Document) -> bool:
    """Whether a burst came about as slowly as its limit says, and not in the half second that the link takes."""
    seconds = burst["bytes"] / 1e6 / burst["limit"]
    return bool(burst["ended"] - burst["ready"] > 0.5 * seconds > 0.5)


def test_bursts_between_hosts_are_kept_to_what_is_required(hosts: Site) -> None:
    site = apart(hosts)
    plain, ours = site.run_both(bursts())
    check_nothing_fell_back(ours.log)
    first, *others, last = given(site)
    # Only a burst that is still on its way when the next one is there can have a limit from the beginning.
    assert "limit" not in first or first["ended"] > others[0]["ready"]
    assert last["rule"] == "exposed"
    assert all(burst["rule"] == "next" for burst in (first, *others))
    assert was_held(others[-1])
    # At the commit the limit ends.
    rates = [(one.get("rate"), one["reason"]) for one in site.records("rate")]
    assert rates[-1] == (None, "commit")
    assert all(rate is not None for rate, reason in rates if reason == "strategy")
    # The next run knows the window of the first burst.
    again = site.run(bursts())
    assert again.ok, again.errors
    assert again.results == plain.results
    assert was_held(given(site)[0])
    check_gone(site)
