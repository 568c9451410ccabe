from __future__ import annotations

import gc
import os
import re
import signal
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

pytest.register_assert_rewrite("lab.runs", "lab.node")

# Started by `nohup`, or in the background of a script, tests would hand on that these are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)


# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)
settings.register_profile("thorough", settings.get_profile("any machine"), max_examples=400)
settings.load_profile("any machine")

#: Tests of a file that share what takes long to make.
_FILES = re.compile(
    r"tests/(unit/|features/(\w+/)?(unit/|integration/test_template)"
    r"|integration/test_(template|faults)|e2e/test_security).*?(?=::)"
)
#: Tests of several files: that have cwltool read its schemas, or that look into all modules.
_TOGETHER = {
    "cwltool": re.compile(
        r"tests/(integration/test_(validate|refusals|guide_page)|features/capio/integration/test_annotate)"
    ),
    "modules": re.compile(r"tests/(unit/test_(architecture|messages)|features/unit/test_pages_with)"),
}
#: Laboratories that take seconds of CPU time to start, their tests, and how many processes have one. A test
#: that is not found here has a laboratory of its own.
_LABORATORIES = {
    "slurm": (
        3,
        r"tests/e2e/(test_(allocation(_features|_local|_several)?|random_runs_in_an_allocation)\.py"
        r"|.*(slurm|login|queue|submitted|\[allocation))",
    ),
    "hosts": (
        2,
        r"tests/e2e/(test_(\w+_(on|of)_hosts|\w+_elsewhere|allocation_launchers|storage_bandwidth"
        r"|streaming_without_hints)\.py|.*\[(hosts|apart))",
    ),
}


#: The files of tests that need what takes half a minute to start: containers, a Slurm, pods.
_SLOW = ("e2e/test_containers.py", "e2e/test_node_on_slurm.py", "e2e/test_kubernetes.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collected tests stay: the garbage collector does not look at them, neither meanwhile nor later."""
    gc.disable()
    # What is imported for that when it is first used may be too deep in a test for Python 3.11 to compile it.
    st.from_regex("a").validate()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One test makes each laboratory, while the others do something else: at first, six would wait for one of them."""
    first = {name: next((item for item in items if name in item.nodeid), None) for name in _SLOW}
    order = {id(item): 0 for item in first.values()}
    place = {"tests/features": 1, "tests/e2e": 2}
    items.sort(key=lambda item: order.get(id(item), place.get("/".join(item.nodeid.split("/")[:2]), 3)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Where several processes run tests, those that share something run one by one in one of them."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            for name, files in _TOGETHER.items():
                if files.match(nodeid):
                    return name
            if found := _FILES.match(nodeid):
                return found[0]
            for name, (count, pattern) in _LABORATORIES.items():
                if re.match(pattern, nodeid):
                    return f"{name} {zlib.crc32(nodeid.encode()) % count}"
            return nodeid

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests away from what their user has learned and recorded."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this run of the tests, for all processes that run them."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
