"""The view of containers on each other's files, by their binds."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.deployment import LocalTarget
from streamflow.cwl.requirement.docker.docker import DockerCWLDockerTranslator
from streamflow.cwl.requirement.docker.singularity import SingularityCWLDockerTranslator

from streamflow_io.graph.volumes import HOST, Bind, binds_of, seen_from

WORKDIR = (Bind("/tmp/streamflow", "/scratch/me"),)

NAMES = ("a", "b", "\udcff")
#: All paths of at most four names, so that each of a test's paths can be looked up in all of them.
PATHS = ["/" + "/".join(names) for length in range(5) for names in product(NAMES, repeat=length)]

paths = st.lists(st.sampled_from(NAMES), max_size=2).map(lambda names: "/" + "/".join(names))
outsides = st.one_of(paths, st.none(), st.sampled_from(["volume:v", "volume:v/a", "volume:w"]))
containers = st.lists(st.builds(Bind, paths, outsides), max_size=4).map(tuple)
hosts = st.just(HOST)
views = st.one_of(containers, containers, containers, hosts)


def place_of(binds: tuple[Bind, ...], path: str) -> str | None:
    """Where a path is outside, name by name as a kernel goes; None: in the container only, or not known."""
    place: str | None = None
    here = "/"
    for name in [None, *path.split("/")[1:]]:
        if name:
            here = f"{here.rstrip('/')}/{name}"
            place = place and f"{place.rstrip('/')}/{name}"
        mounted = {bind.outside for bind in binds if bind.inside == here}
        if mounted:
            place = mounted.pop() if len(mounted) == 1 else None
    return place


def names_of(binds: tuple[Bind, ...], place: str | None) -> set[str]:
    """All paths that are at a place."""
    assert place is not None
    found = set()
    for bind in binds:
        root = (bind.outside or "").rstrip("/")
        if bind.outside is not None and (place == root or place.startswith(f"{root}/")):
            found.add((bind.inside.rstrip("/") + place[len(root) :]).rstrip("/") or "/")
    return {path for path in found if place_of(binds, path) == place}


@given(views, st.sampled_from(PATHS), views)
def test_a_container_sees_what_is_at_the_same_place_and_nothing_else(
    a: tuple[Bind, ...], path: str, b: tuple[Bind, ...]
) -> None:
    place, seen = place_of(a, path), seen_from(a, path, b)
    if seen is not None:
        assert place is not None
        assert place_of(b, seen) == place
    elif place is not None:
        assert not [other for other in PATHS if place_of(b, other) == place]


@given(views, st.sampled_from(PATHS), views)
def test_there_and_back_is_the_same_place(a: tuple[Bind, ...], path: str, b: tuple[Bind, ...]) -> None:
    if (there := seen_from(a, path, b)) is None:
        return
    back = seen_from(b, there, a)
    assert back is not None
    assert place_of(a, back) == place_of(a, path)
    if names_of(a, place_of(a, path)) == {path}:
        assert back == path


@pytest.mark.parametrize(
    ("a", "path", "b", "seen"),
    [
        (HOST, "/any/thing", HOST, "/any/thing"),
        # a name that only begins as that of the bind
        (WORKDIR, "/tmp/streamflow2/x", HOST, None),
        (HOST, "/scratch/me2", WORKDIR, None),
        ((Bind("/w", "volume:v"),), "/w/f", (Bind("/x", "volume:v2"),), None),
        # slashes and dots; `..` may follow a symbolic link
        ((Bind("/w/", "/d//x/"),), "//w//./f/", HOST, "/d/x/f"),
        ((Bind("/w", "/d/y/../x"),), "/w/f", HOST, "/d/x/f"),
        ((Bind("/w", "volume:v"),), "/w/f", (Bind("/x", "volume:v/"),), "/x/f"),
        (WORKDIR, "/tmp/streamflow/../streamflow/x", HOST, None),
        (WORKDIR, "tmp/streamflow/x", HOST, None),
        (WORKDIR, "", HOST, None),
        # nested: the inner bind is another place in A, and covers the outer one in B
        ((Bind("/w", "/d"), Bind("/w/sub", "/e")), "/w/sub/f", (Bind("/x", "/d"),), None),
        ((Bind("/w", "/d"), Bind("/w/sub", "/e")), "/w/sub/f", (Bind("/x", "/e"),), "/x/f"),
        ((Bind("/w", "/d"),), "/w/sub/f", (Bind("/x", "/d"), Bind("/x/sub", "/e")), None),
        ((Bind("/w", "/d"),), "/w/sub/f", (Bind("/x", "/d"), Bind("/x/sub", None)), None),
        # two at the same path: not known which
        ((Bind("/w", "/d"), Bind("/w", "/e")), "/w/f", HOST, None),
        (HOST, "/d/f", (Bind("/w", "/d"), Bind("/w", "/e")), None),
        # the longest source of B; of the same source twice, the one with the same name
        ((Bind("/w", "/d"),), "/w/sub/f", (Bind("/x", "/d"), Bind("/y", "/d/sub")), "/y/f"),
        ((Bind("/w", "/d"),), "/w/f", (Bind("/x", "/d"), Bind("/w", "/d")), "/w/f"),
        ((Bind("/w", "/d"),), "/w/f", (Bind("/x", "/d"), Bind("/y", "/d")), "/x/f"),
    ],
)
def test_what_drawn_binds_do_not_show(a: tuple[Bind, ...], path: str, b: tuple[Bind, ...], seen: str | None) -> None:
    assert seen_from(a, path, b) == seen


@pytest.mark.parametrize(("inside", "outside"), [("w", "/d"), ("", "/d"), ("/w", "d"), ("/w", ""), ("/w", "~/d")])
def test_a_bind_has_absolute_paths(inside: str, outside: str) -> None:
    with pytest.raises(ValueError, match="is not an absolute path"):
        Bind(inside, outside)


@pytest.mark.parametrize(
    ("option", "value", "binds"),
    [
        ("volume", "/d:/w", [Bind("/w", "/d")]),
        ("volume", "/d/:/w/:ro", [Bind("/w", "/d")]),
        ("volume", "/d:/w:z,ro", [Bind("/w", "/d")]),
        ("volume", "data:/w", [Bind("/w", "volume:data")]),
        ("volume", "/w", [Bind("/w", None)]),
        ("volume", "./d:/w", [Bind("/w", None)]),
        ("volume", "d/e:/w", [Bind("/w", None)]),
        ("volume", "~/d:/w", [Bind("/w", None)]),
        ("volume", "$HOME/d:/w", [Bind("/w", None)]),
        ("volume", "/d/`id`:/w", [Bind("/w", None)]),
        ("volume", "/d:/\udcff", [Bind("/\udcff", "/d")]),
        ("mount", "type=bind,source=/d,target=/w", [Bind("/w", "/d")]),
        ("mount", "type=bind,src=/d,dst=/w,readonly", [Bind("/w", "/d")]),
        ("mount", "type=bind,src=/d,destination=/w,ro=false", [Bind("/w", "/d")]),
        ("mount", "type=bind,src=/d,dst=/w,ro=1", [Bind("/w", "/d")]),
        ("mount", "type=bind,src=/d,dst=/w,bind-nonrecursive=true", [Bind("/w", None)]),
        ("mount", "type=volume,source=data,target=/w", [Bind("/w", "volume:data")]),
        ("mount", "type=volume,source=data,target=/w,volume-subpath=a/b", [Bind("/w", "volume:data/a/b")]),
        ("mount", "type=volume,target=/w", [Bind("/w", None)]),
        ("mount", "type=tmpfs,target=/w", [Bind("/w", None)]),
        ("mount", "type=image,source=debian,target=/w", [Bind("/w", None)]),
        ("tmpfs", "/w:size=1m", [Bind("/w", None)]),
    ],
)
def test_binds_of_docker(option: str, value: str, binds: list[Bind]) -> None:
    assert binds_of("docker", {option: [value], "image": "debian"}) == tuple(binds)
    assert binds_of("docker", {option: value}) == tuple(binds)


@pytest.mark.parametrize(
    ("option", "value", "binds"),
    [
        ("bind", "/d:/w", [Bind("/w", "/d")]),
        ("bind", "/d", [Bind("/d", "/d")]),
        ("bind", "/d:/w:ro", [Bind("/w", "/d")]),
        ("bind", "/d,/e:/w", [Bind("/d", "/d"), Bind("/w", "/e")]),
        ("bind", "/d:/w:ro,/e:/x:rw", [Bind("/w", "/d"), Bind("/x", "/e")]),
        ("bind", "/d.sif:/w:image-src=/,ro", [Bind("/w", None)]),
        ("bind", "data:/w", [Bind("/w", None)]),
        ("bind", "~/d:/w", [Bind("/w", None)]),
        ("mount", "type=bind,source=/d,destination=/w,ro", [Bind("/w", "/d")]),
        ("mount", "type=bind,source=/d.sif,destination=/w,image-src=/", [Bind("/w", None)]),
        ("home", "/d:/home/me", [Bind("/home/me", "/d")]),
        ("scratch", "/w,/x", [Bind("/w", None), Bind("/x", None)]),
        ("fusemount", "container:sshfs server:/ /w", [Bind("/w", None)]),
    ],
)
def test_binds_of_singularity(option: str, value: str, binds: list[Bind]) -> None:
    assert binds_of("singularity", {option: [value], "image": "debian.sif"}) == tuple(binds)


@pytest.mark.parametrize(
    ("engine", "config"),
    [
        ("docker", {}),
        ("docker", {"volume": None, "mount": None}),
        # what may be anywhere in the container may cover the others
        ("docker", {"volume": ["/d:/w", "/d:$HOME/x"]}),
        ("docker", {"volume": ["/d:/w", "/d:relative"]}),
        ("docker", {"volume": ["/d:/w", "a:b:c:d"]}),
        ("docker", {"volume": ["/d:/w"], "volumesFrom": ["other"]}),
        ("docker", {"volume": ["/d:/w"], "mount": ["type=tmpfs"]}),
        ("docker", {"volume": [{"source": "/d"}]}),
        ("docker", {"volume": 1}),
        ("singularity", {"bind": ["/d:/w", "/e:\\:x"]}),
        ("docker-compose", {"volume": ["/d:/w"]}),
        ("kubernetes", {"volume": ["/d:/w"]}),
    ],
)
def test_what_cannot_be_read_binds_nothing(engine: str, config: dict[str, object]) -> None:
    assert binds_of(engine, config) == ()


@given(st.sampled_from(["docker", "singularity"]), st.sampled_from(["volume", "mount", "bind", "scratch"]), st.text())
def test_no_configuration_is_too_odd(engine: str, option: str, text: str) -> None:
    for bind in binds_of(engine, {option: [text]}):
        assert bind.inside.startswith("/")


@pytest.mark.parametrize(
    ("engine", "translator", "option"),
    [
        ("docker", DockerCWLDockerTranslator, {"volume": ["/refs:/refs:ro"]}),
        ("singularity", SingularityCWLDockerTranslator, {"bind": ["/refs:/refs:ro"]}),
    ],
)
def test_containers_of_steps_see_the_same_directory(engine: str, translator: type, option: dict[str, object]) -> None:
    """StreamFlow makes such containers of a DockerRequirement."""
    target = translator(config_dir="/", wrapper=False, **option).get_target(
        "debian", "/results", False, LocalTarget(workdir="/scratch/me")
    )
    refs, workdir, results = binds_of(engine, target.deployment.config)
    assert refs == Bind("/refs", "/refs")
    assert workdir == Bind(target.workdir, "/scratch/me")
    outside = seen_from((refs, workdir, results), "/results/x", HOST)
    assert outside is not None
    assert seen_from((refs, workdir, results), "/results/x", (workdir,)) == outside.replace(
        "/scratch/me", target.workdir
    )
