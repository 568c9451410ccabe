"""What a command leaves running on a cluster writes on for as long as with plain StreamFlow."""

from __future__ import annotations

from tests.e2e.support import Site
from tests.integration.test_background_writers import every_kind


def test_a_job_ends_when_it_ends_with_plain_streamflow(site: Site) -> None:
    plain = site.run(every_kind(), io=False)
    ours = site.run(every_kind(), config={"storages": [site.storage(100)]})
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    # Something is written by those that are left running.
    assert plain.files["io.gz"]
