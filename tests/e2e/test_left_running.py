"""Programs that a command leaves running on a host write on for as long as with plain StreamFlow.

On a queue manager plain StreamFlow waits for nothing that is left running: what it finds there depends on the moment.
"""

from __future__ import annotations

import pytest

from lab.sites import Site
from tests.integration.test_background_writers import every_kind


@pytest.mark.long
def test_a_job_ends_when_it_ends_with_plain_streamflow(hosts: Site) -> None:
    configs = [{}, {"storages": [hosts.storage(100)]}]
    plain, ours = hosts.run_all([hosts.write(every_kind(), {}, bool(config), config) for config in configs])
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert plain.files["bytes.txt"] == b"line 1\nline 2\nline 3\n"
