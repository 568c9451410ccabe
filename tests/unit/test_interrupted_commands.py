"""The end of a command after Ctrl-C."""

from __future__ import annotations

import pytest

from streamflow_io import cli
from streamflow_io.commands import doctor


def test_ctrl_c_ends_a_command_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", run)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "streamflow-io: interrupted\n")
