"""A `sfio-node` of another build is told apart before anything is said to it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streamflow_io.runtime.binary import PROTOCOL, other_build
from streamflow_io.runtime.embedded import EmbeddedRuntime, find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError


def test_the_binary_is_of_this_build() -> None:
    said = subprocess.run([find_sfio_node(), "--version"], check=True, capture_output=True, text=True).stdout
    assert said.strip().endswith(f" protocol {PROTOCOL}")
    assert other_build(said) is None
    EmbeddedRuntime.check_this_node()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("sfio-node 0.1.0", "it is of another build (sfio-node 0.1.0, protocol none yet) than this streamflow-io"),
        (f"sfio-node 0.2.0 protocol {PROTOCOL + 1}", f"(sfio-node 0.2.0, protocol {PROTOCOL + 1}) than this"),
        ("sfio-node 0.1.0 protocol x", "it is no sfio-node: it says 'sfio-node 0.1.0 protocol x'"),
        ("hello", "it is no sfio-node: it says 'hello'"),
        ("", "it is no sfio-node: it says ''"),
    ],
)
def test_another_build_is_refused(said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sfio-node"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("SFIO_NODE", str(program))
    with pytest.raises(NodeRuntimeError) as refused:
        EmbeddedRuntime.check_this_node()
    assert str(refused.value).startswith(f"{program} cannot be used: ")
    assert why in str(refused.value)
