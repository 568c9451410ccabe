"""Checks whether a `sfio-node` is of the build that this driver needs."""

from __future__ import annotations

import re

#: The version of the protocol in the output of `sfio-node --version`. It is raised, here and in `node/src/main.rs`, by
#: each change of docs/node-protocol.md that an older build on the other side would not understand.
PROTOCOL = 12

_SAID = re.compile(r"sfio-node (?P<version>\S+)(?: protocol (?P<protocol>[0-9]+))?")


def other_build(said: str) -> str | None:
    """Why this driver cannot talk with a program; None: no obstacle.

    :param said: the program's output for `--version`
    """
    found = _SAID.fullmatch(said.strip())
    if found is None:
        return f"it is no sfio-node: it says {said.strip()[:200]!r}"
    protocol = found["protocol"]
    if protocol is not None and int(protocol) == PROTOCOL:
        return None
    has = "none yet" if protocol is None else protocol
    return (
        f"it is of another build (sfio-node {found['version']}, protocol {has}) than this streamflow-io (protocol "
        f"{PROTOCOL}): install both from one wheel, or build it again from the same sources"
    )
