"""Parts of a file that is still written, on SSH hosts and in containers, and whoever reads them dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.container_sites import Containers, contained
from lab.sites import Site
from tests.e2e.test_parts_elsewhere import STREAMED, one_host, two_hosts
from tests.e2e.test_streaming import check_gone
from tests.features.cuts.integration.test_growing_parts import SEEN, document_of, job, producer, readers, split

LONG = pytest.mark.long
# Without the program of coreutils, which is not in all images.
SPLIT = """awk '{ f = sprintf("chunk-%02d.txt", int((NR - 1) / 14) + 1); print > f }' $reads"""
VERIFIED = "for /split/chunks is verified"
VIRTUAL = "Job /split/0 writes no parts"


@pytest.mark.parametrize("place", ["two hosts", pytest.param("one host", marks=LONG)])
def test_hosts(hosts: Site, tmp_path: Path, place: str) -> None:
    """Readers on other hosts get the bytes by a link, while they are written."""
    site = one_host(hosts) if place == "one host" else two_hosts(hosts)
    document, values = document_of(producer(SEEN), split(script=SPLIT), STREAMED), job(tmp_path)
    plain, first = site.run_both(document, values)
    assert VERIFIED in first.log, first.errors
    (site.directory / "again").touch()
    ours = site.run(document, values)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert VIRTUAL in ours.log
    (went_on,) = ours.times("went on")
    assert len([time for time in readers(ours) if time < went_on]) == 2, ours.trace
    check_gone(site)


@LONG
@pytest.mark.parametrize("place", ["slurm", pytest.param("containers", marks=LONG)])
def test_where_it_may_be_real(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """On the nodes of a queue; in a container of its own a step does not see the file before it is complete."""
    site = request.getfixturevalue("slurm" if place == "slurm" else "docker")
    document, values = document_of(producer("sleep 0.3"), split(script=SPLIT)), job(tmp_path)
    if isinstance(site, Containers):
        document = contained(document)
    plain, first = site.run_both(document, values)
    ours = site.run(document, values)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    if isinstance(site, Site):
        assert (VERIFIED in first.log, VIRTUAL in ours.log) == (True, True), first.errors
        check_gone(site)
    else:
        assert "/split/reads is streamed from another host or container" in ours.log, ours.errors
