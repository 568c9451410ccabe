"""A command in a shell of StreamFlow that is given up leaves nothing in the output of the next command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.deployment.connector.base import BaseConnector
from streamflow.deployment.shell import BaseShell

from lab.node import wait_for
from streamflow_io import _streamflow
from tests.unit.test_lost_nodes import Run, node


class Plain(BaseConnector):
    """StreamFlow's own shell, as SSH hosts and containers have a similar one."""

    async def deploy(self, external: bool) -> None:
        pass

    @classmethod
    def get_schema(cls) -> str:
        return "{}"

    async def get_available_locations(self, service: str | None = None) -> dict[str, object]:
        return {}


@pytest.fixture(params=["StreamFlow", "allocation"])
async def connector(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connector]:
    made = Plain("nodes", "/", 2**16) if request.param == "StreamFlow" else Run(tmp_path, "n1").nodes
    await made.deploy(False)
    yield made
    await made.undeploy(False)


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseShell, "execute", BaseShell.execute)
    _streamflow.mend_shells()


async def after_one_that_is_given_up(connector: Connector, location: ExecutionLocation, began: Path) -> str:
    """Return the output of a command after one that was cancelled while the command ran."""
    shell = await connector.get_shell(["sh"], location)
    wait = f"touch {began}; until [ -e {began}.go ]; do sleep 0.01; done; echo other"
    given_up = asyncio.create_task(shell.execute([wait], capture_output=True))
    await asyncio.to_thread(wait_for, began.exists, "the command")
    given_up.cancel()
    await asyncio.wait({given_up})
    assert given_up.cancelled()
    Path(f"{began}.go").touch()
    said, code = await shell.execute(["echo mine"], capture_output=True)
    assert code == 0
    return str(said)


@pytest.mark.usefixtures("mended")
async def test_the_output_of_a_command_is_its_own(connector: Connector, tmp_path: Path) -> None:
    assert await after_one_that_is_given_up(connector, node("n1"), tmp_path / "began") == "mine"


async def test_streamflow_itself_mixes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once it does not, `mend_shells` can go."""
    monkeypatch.setattr(BaseShell, "execute", _streamflow._execute)
    plain = Plain("nodes", "/", 2**16)
    said = await after_one_that_is_given_up(plain, node("n1"), tmp_path / "began")
    assert "other" in said
    assert "mine" in said
    await plain.undeploy(False)


@pytest.mark.usefixtures("mended")
async def test_a_command_that_is_given_up_before_its_turn_does_not_run(connector: Connector, tmp_path: Path) -> None:
    shell = await connector.get_shell(["sh"], node("n1"))
    first = asyncio.create_task(
        shell.execute([f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"], capture_output=True)
    )
    await asyncio.sleep(0)
    second = asyncio.create_task(shell.execute([f"touch {tmp_path}/ran"], capture_output=True))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    (tmp_path / "go").touch()
    await first
    assert await shell.execute(["echo mine"], capture_output=True) == ("mine", 0)
    assert not (tmp_path / "ran").exists()
