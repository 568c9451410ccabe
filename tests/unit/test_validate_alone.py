"""`pip install streamflow-io` brings little beside StreamFlow, and works without what an extra brings."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.cwl import tool, versioned, workflow
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


# Prints what `validate` says of three files.
WITHOUT_CWLTOOL = """
import json, sys
sys.modules["cwltool"] = None
from streamflow_io.commands.validate import validate
print(json.dumps([(each.ok, each.to_json()) for each in map(validate, sys.argv[1:])]))
"""


def test_hints_are_checked_without_cwltool(tmp_path: Path) -> None:
    step = tool("echo", {}, {}, hints=[{"class": "sfio:IOTask"}])
    text = json.dumps(versioned(workflow({}, {"a": {"run": step, "in": {}}}, {})))
    texts = [text, text.replace("IOTask", "IOTasks"), text.replace('"class": "Workflow"', '"class": "Workflows"')]
    files = [tmp_path / f"{number}.cwl" for number in range(3)]
    for file, each in zip(files, texts, strict=True):
        file.write_text(each)
    done = subprocess.run([sys.executable, "-c", WITHOUT_CWLTOOL, *files], check=True, capture_output=True, text=True)
    (right, told), (hint, mistakes), (wrong, refused) = json.loads(done.stdout)
    assert right
    assert told["steps"]["/a"]
    assert told["cwl"]["messages"] == [f"{files[0]}: only the hints are checked. For all of CWL: {WITH_CWLTOOL}"]
    assert not hint
    assert "IOTasks" in mistakes["errors"][0]["message"]
    assert not wrong
    assert "Workflows" in refused["cwl"]["messages"][0]
