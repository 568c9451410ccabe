"""Windows between SSH hosts, and in containers; results are plain StreamFlow's."""

from __future__ import annotations

import functools
import hashlib
from typing import Final

import pytest

from lab.container_sites import BUSYBOX, DEBIAN, Containers, contained
from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import RETRY
from lab.sites import Site, apart
from tests.e2e.test_streaming import LONG, check_gone

SMALL: Final = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
SIZE: Final = 24_000_000
RULE: Final = streaming({"port": "out", "mode": "no_update", "window": "16MB"})
#: The job goes on until a part of its file is not on disk any more, or for 30 s. A second attempt ends at once.
WRITE: Final = (
    f'note a; n=300; test -e "$TRACE.a" && n=0; touch "$TRACE.a"; seq 1 9999999 | head -c {SIZE} > out.txt; '
    f"for t in $(seq $n); do test $(stat -c %b out.txt) -lt {SIZE // 768} && note gone && break; sleep 0.1; done"
)


@functools.cache
def expected() -> str:
    return hashlib.sha1("".join(f"{n}\n" for n in range(1, 3_200_000)).encode()[:SIZE]).hexdigest()


def chain(script: str = "sha1sum < $file > copy.txt") -> Document:
    """/b reads what /a writes, and /c has the result of /b."""
    first = tool(WRITE, {}, {"out": found("out.txt")}, [RULE], requirements=SMALL)
    second = tool(script, {"file": streamable()}, {"out": found("copy.txt")}, requirements=SMALL)
    last = tool("cat $file > last.txt", {"file": "File"}, {"out": found("last.txt")}, requirements=SMALL)
    steps: dict[str, Document] = {
        "a": {"run": first, "in": {}},
        "b": {"run": second, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out"})


def test_what_was_read_is_removed(hosts: Site) -> None:
    place = apart(hosts)
    ours = place.run(chain(), seconds=120)
    assert ours.ok, ours.errors
    assert ours.files["last.txt"].split()[0].decode() == expected()
    assert len(ours.times("gone")) == 1, ours.errors
    assert "SFIO-N00" not in ours.log
    check_gone(place)


def test_a_reader_that_is_tried_again(hosts: Site) -> None:
    """The bytes that it has read are removed on the other host: both run again. All of it goes over TLS."""
    place = apart(hosts)
    once = 'test -e "$TRACE.once" || { touch "$TRACE.once"; head -c 20000000 $file > half; sleep 1; exit 3; }; '
    ours = place.run(chain(once + "sha1sum < $file > copy.txt"), config={"tls": True}, seconds=120, **RETRY)
    assert ours.ok, ours.errors
    assert ours.files["last.txt"].split()[0].decode() == expected()
    assert len(ours.times("a")) == 2
    assert "Job /a/0 starts again, and keeps its files whole: a reader needs the whole file" in ours.log
    check_gone(place)


@pytest.mark.parametrize("read", [DEBIAN, *(pytest.param(each, marks=LONG) for each in (BUSYBOX, None))])
def test_in_containers(docker: Containers, read: str | None) -> None:
    """Both containers have one image, or two, or the reader is on their host."""
    document = contained(chain(), b=read, c=None)
    path = docker.write(document, {}, True)
    ours = docker.finish(docker.start(path), path, 120)
    assert ours.ok, ours.errors
    assert ours.files["last.txt"].split()[0].decode() == expected()
    assert len(ours.times("gone")) == 1, ours.errors
    assert "SFIO-N00" not in ours.log
