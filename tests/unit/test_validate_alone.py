"""`pip install streamflow-io` brings little beside StreamFlow, and works without what an extra brings."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.cwl import tool, versioned, workflow
from streamflow_io.commands.validate import validate
from streamflow_io.errors import WITH_CWLTOOL


def installed_with(root: str) -> set[str]:
    """The distributions that come with one, by the metadata of those that are here."""
    found: set[tuple[str, str]] = set()
    ahead = [(canonicalize_name(root), "")]
    while ahead:
        if (each := ahead.pop()) in found:
            continue
        found.add(each)
        try:
            needs = map(Requirement, requires(each[0]) or ())
        except PackageNotFoundError:
            continue
        for need in needs:
            if need.marker is None or need.marker.evaluate({"extra": each[1]}):
                ahead += ((canonicalize_name(need.name), extra) for extra in ("", *need.extras))
    return {name for name, _ in found}


def test_few_distributions_beside_those_of_streamflow() -> None:
    further = installed_with("streamflow-io") - installed_with("streamflow") - {"streamflow-io"}
    assert {"pydantic", "msgspec"} <= further
    assert len(further) <= 8, further


def test_hints_are_checked_without_cwltool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cwltool", None)
    step = tool("echo", {}, {}, hints=[{"class": "sfio:IOTask"}])
    (file := tmp_path / "w.cwl").write_text(json.dumps(versioned(workflow({}, {"a": {"run": step, "in": {}}}, {}))))
    right = validate(str(file))
    assert right.ok
    assert right.steps["/a"].io_task
    assert right.messages == (f"{file}: only the hints are checked. For all of CWL: {WITH_CWLTOOL}",)
    file.write_text(file.read_text().replace("IOTask", "IOTasks"))
    wrong = validate(str(file))
    assert not wrong.ok
    assert "IOTasks" in wrong.errors[0].message
    file.write_text(file.read_text().replace('"class": "Workflow"', '"class": "Workflows"'))
    assert "Workflows" in " ".join(validate(str(file)).messages)
