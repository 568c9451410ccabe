"""The way of parts to their readers, and the trials before anything is said of them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace
from streamflow.core.workflow import Job

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import PartToken, SaidBy, file_value
from streamflow_io.graph.io_graph import Input
from streamflow_io.graph.sites import DRIVERS_NODE, Deployment, Site, SiteKind
from streamflow_io.hints.config import StorageConfig
from streamflow_io.parts.part_ways import CutFile, PartSites, PartWays
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import Event, FileIdentity, FilePart, FoundFile, Link, PartEvent

IDENTITY = FileIdentity(device=4, inode=1, size=9, mtime=2)
FILE = FoundFile(path="/data/all", identity=IDENTITY)
SSH = Site((Deployment("hosts", "ssh", SiteKind.HOSTS),))
PART = FilePart(file="/data/all", identity=IDENTITY, pieces=())
SPLIT = JobState(Job("/split/0", 1, {}, "/in", "/out", "/tmp"))
TOKEN = PartToken(file_value("/out/1"), PART, "chunks", SaidBy("/split/0", "/run", "s", 7))


@dataclass(eq=False)
class Runtime:
    """The place where jobs run: whether it sees the file, and which others it reaches."""

    sees: bool = True
    reaches: bool = False
    directory: str = "/run"

    async def find(self, path: str) -> FoundFile:
        return FILE

    async def why_not(self, file: FoundFile) -> str | None:
        assert file == FILE
        return None if self.sees else "no such file"

    async def no_link(self, home: object) -> str | None:
        return None if self.reaches else "no link"

    def link(self, job: str, reader: object) -> Link:
        return Link(address="h:1", job=job, certificate="/certificate")


@dataclass
class Setting:
    """The split runs at home, its readers at some locations."""

    site: Site = SSH
    kind: str = "ssh"
    storage: StorageConfig | None = None
    home: Runtime = field(default_factory=Runtime)
    readers: dict[str, Runtime | None] = field(default_factory=dict)

    async def for_streams_at(self, location: str, workdir: str) -> Runtime:
        if (runtime := self.readers[location]) is None:
            raise NodeRuntimeError(f"no node runtime at {location}")
        return runtime

    async def deploy(self, config: object) -> None:
        pass

    async def get_available_locations(self, service: str | None) -> dict[str, Any]:
        return {name: SimpleNamespace(name=name, location=name) for name in self.readers}

    def ways(self, locations: Sequence[str] = ("home",)) -> PartWays:
        target = SimpleNamespace(
            deployment=SimpleNamespace(name="there", type=self.kind), workdir="/work", service=None, locations=1
        )
        binding = SimpleNamespace(binding_config=SimpleNamespace(targets=[target]))
        deployments = SimpleNamespace(deploy_ahead=lambda name: None, where=lambda location: f"on {location}")
        manager = SimpleNamespace(deploy=self.deploy, get_connector=lambda name: self)
        here = SimpleNamespace(
            target=SimpleNamespace(deployment=SimpleNamespace(name="here")),
            locations=[SimpleNamespace(name=name) for name in locations],
        )
        sites = PartSites(
            cast(Any, SimpleNamespace(steps={"/count/__schedule__": binding})),
            lambda step, port: [Input("/count", "chunk", site=self.site)],
            cast(Any, SimpleNamespace(deployment_manager=manager)),
            cast(Any, SimpleNamespace(for_streams_at=self.for_streams_at, deployments=deployments)),
            cast(Any, SimpleNamespace(of=lambda *_: self.storage)),
        )
        steps = {"/split": cast(Any, SimpleNamespace(site=self.site))}
        return PartWays(sites, steps, {"/split/0": cast(Any, here)})

    async def decide(self, ways: PartWays) -> CutFile | None:
        return await ways.of(SPLIT.job, "chunks", "/in/all", cast(Any, self.home))


def link_of(ways: PartWays, reader: Runtime) -> Link | None:
    return ways.link(cast(Any, reader), TOKEN)


async def test_on_the_drivers_node_nothing_is_tried() -> None:
    setting = Setting(site=DRIVERS_NODE)
    assert await setting.decide(setting.ways()) == CutFile("/in/all", is_here=True)


async def test_who_sees_the_file_reads_it() -> None:
    setting = Setting(readers={"a": (one := Runtime()), "b": (other := Runtime())})
    found = await setting.decide(ways := setting.ways())
    assert found == CutFile("/in/all", is_here=False, found=FILE, from_home=False)
    assert link_of(ways, one) is link_of(ways, other) is None


async def test_who_does_not_see_it_gets_parts_by_a_link() -> None:
    setting = Setting(readers={"a": (one := Runtime(sees=False, reaches=True)), "b": (other := Runtime())})
    ways = setting.ways()
    assert await setting.decide(ways) is not None
    assert link_of(ways, one) == Link(address="h:1", job="s", certificate="/certificate")
    assert link_of(ways, other) is None


async def test_what_another_run_has_said_is_read_from_the_file() -> None:
    setting = Setting(home=Runtime(directory="/other"), readers={"a": (one := Runtime(sees=False, reaches=True))})
    ways = setting.ways()
    assert await setting.decide(ways) is not None
    assert link_of(ways, one) is None


async def test_what_is_read_ahead_is_sent_to_all() -> None:
    home, other = Runtime(), Runtime(reaches=True)
    setting = Setting(home=home, readers={"a": home, "b": other})
    found = await setting.decide(ways := setting.ways())
    assert found is not None
    assert found.from_home
    assert link_of(ways, other) is None
    ways.read_ahead(SPLIT)
    assert link_of(ways, other) is not None
    assert link_of(ways, home) is None


async def test_a_job_goes_to_its_part_if_it_fits_there() -> None:
    reader = Job("/count/0", 1, {"chunk": TOKEN}, "/in", "/out", "/tmp")
    other = Job("/other/0", 1, {}, "/in", "/out", "/tmp")
    both = {name: cast(Any, SimpleNamespace(name=name)) for name in ("a", "home")}
    only = {"a": both["a"]}
    setting = Setting(readers={"a": Runtime(reaches=True)})
    ways = setting.ways()
    assert await setting.decide(ways) is not None
    assert ways.narrow(reader, both) == both, "all read the file itself"
    ways.read_ahead(SPLIT)
    assert ways.narrow(reader, both) == {"home": both["home"]}
    assert ways.narrow(reader, only) == only
    assert ways.narrow(other, both) == both
    linked = Setting(readers={"a": Runtime(sees=False, reaches=True)})
    ways = linked.ways()
    assert await linked.decide(ways) is not None
    assert ways.narrow(reader, both) == {"home": both["home"]}


async def test_a_job_goes_anywhere_while_the_split_has_no_place() -> None:
    """The split has given up its place, because its node is lost."""
    reader = Job("/count/0", 1, {"chunk": TOKEN}, "/in", "/out", "/tmp")
    left = {"a": cast(Any, SimpleNamespace(name="a"))}
    ways = Setting(readers={"a": Runtime(reaches=True)}).ways(locations=[])
    ways.read_ahead(SPLIT)
    assert ways.narrow(reader, left) == left


async def test_a_job_whose_part_is_read_at_another_node_than_the_split_goes_there_or_reads_the_file() -> None:
    """The device of the file has another number at each node."""
    reader = Job("/count/0", 1, {"chunk": TOKEN}, "/in", "/out", "/tmp")
    both = {name: cast(Any, SimpleNamespace(name=name)) for name in ("a", "home")}
    setting = Setting(readers={"a": (other := Runtime(reaches=True))})
    ways = setting.ways()
    assert await setting.decide(ways) is not None
    ways.read_ahead(SPLIT)
    elsewhere = replace(PART, identity=replace(IDENTITY, device=7))
    ways.read_at(elsewhere, "home", is_at_split=True)
    assert ways.narrow(reader, both) == {"home": both["home"]}
    assert link_of(ways, other) is not None
    ways.read_at(elsewhere, "a", is_at_split=False)
    assert ways.narrow(reader, both) == {"a": both["a"]}
    assert link_of(ways, other) is None


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (Setting(readers={"a": Runtime(sees=False)}), "/count, on a, does not see the file (no such file), and cannot"),
        (Setting(readers={"a": Runtime(), "b": None}), "no node runtime at b"),
        (Setting(kind="slurm", readers={"a": Runtime()}), "/data/all is on no storage of there with `scope: shared`"),
        (
            Setting(kind="slurm", readers={"a": Runtime()}, storage=StorageConfig(name="d", path="/", read=1)),
            "/data/all is on no storage of there with `scope: shared`",
        ),
    ],
)
async def test_who_can_have_it_neither_way(setting: Setting, why: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("streamflow").addHandler(caplog.handler)
    ways = setting.ways()
    assert [await setting.decide(ways), await setting.decide(ways)] == [None, None]
    assert [record.getMessage() for record in caplog.records if why in record.getMessage()] == [
        record.getMessage() for record in caplog.records
    ]
    assert len(caplog.records) == 1


async def test_a_storage_of_which_the_user_says_that_others_see_it() -> None:
    storage = StorageConfig(name="d", path="/", read=1, scope="shared")
    setting = Setting(kind="slurm", readers={"a": Runtime()}, storage=storage)
    assert await setting.decide(setting.ways()) is not None


async def test_elsewhere_the_device_has_another_number() -> None:
    said = {"event": "part", "job": "s", "time": 0.0, "port": "p", "number": 1, "name": "a", "size": 0, "path": "/d"}
    event = convert(said | {"identity": to_builtins(IDENTITY), "pieces": []}, PartEvent)

    async def events() -> AsyncIterator[Event]:
        yield event

    for is_here, device in ((True, 4), (False, None)):
        (told,) = [each async for each in CutFile("/d", is_here).events(events())]
        assert isinstance(told, PartEvent)
        assert told.identity == replace(IDENTITY, device=device)


@pytest.mark.parametrize(
    ("identity", "path"),
    [
        (IDENTITY, "/data/all"),
        (replace(IDENTITY, device=5), "/data/all"),
        (replace(IDENTITY, inode=2), "/in/all"),
        (replace(IDENTITY, mtime=3), "/in/all"),
    ],
)
def test_readers_find_the_file_that_the_split_has_cut(identity: FileIdentity, path: str) -> None:
    """A file that has taken the place of the link is known by the path of the split alone."""
    said = {"event": "part", "job": "s", "time": 0.0, "port": "p", "number": 1, "name": "a", "size": 0}
    event = convert({**said, "path": "/in/all", "identity": to_builtins(identity), "pieces": []}, PartEvent)
    assert CutFile("/in/all", is_here=False, found=FILE).as_read(event).path == path
    assert CutFile("/in/all", is_here=True, found=FILE).as_read(event).path == "/in/all"
