"""The example of the README, as a new user copies it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.pictures import run, write_example
from streamflow_io.commands.plan import plan_file
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import StreamedRecord
from streamflow_io.records.reader import read_records


def test_the_example_streams(tmp_path: Path) -> None:
    write_example(tmp_path)
    (plan,) = plan_file(tmp_path / "streamflow.yml").plans.values()
    assert [(edge.name, edge.delivery) for edge in plan.graph.edges] == [
        ("/measure/values -> /add/values", Delivery.STREAM)
    ]


@pytest.mark.long
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    write_example(tmp_path)
    assert "This run has taken" in run(tmp_path, "example", "streamflow.yml")
    (total,) = (tmp_path / "example").iterdir()
    assert total.read_text() == "820\n"
    records = list(read_records(tmp_path / "streamflow-io" / "runs" / "example" / "telemetry.jsonl"))
    assert any(isinstance(record, StreamedRecord) for record in records)
