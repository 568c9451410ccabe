"""Runs the tool of one step of a workflow with cwltool, without StreamFlow and StreamFlow-IO."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamflow_io.hints.cwl import file_of

# `-m cwltool` always ends with exit code 0.
_CWLTOOL = "import sys; from cwltool.main import main; sys.exit(main())"


class ToolError(Exception):
    """The tool could not be run, or has failed. The message says why."""


def run_tool(document: str, step: str, inputs: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Run a tool to its end.

    :param document: the URI of the workflow
    :param step: the path of the step, which must not be in a subworkflow
    :param inputs: the inputs of the tool, as in CWL
    :param directory: receives the outputs; the directory above it must exist
    :return: the outputs of the tool, as in CWL
    :raises ToolError: if the tool has no outputs
    """
    name = step.strip("/")
    if "/" in name:
        raise ToolError(f"{step}: cwltool cannot run a step of a workflow in another alone: --against a directory")
    job = directory.with_name("job.json")
    job.write_text(json.dumps(inputs))
    alone = ["--single-process", name] if name else []
    words = [sys.executable, "-c", _CWLTOOL, "--quiet", "--enable-ext", "--outdir", str(directory)]
    done = subprocess.run(
        [*words, *alone, file_of(document), str(job)], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise ToolError(f"the tool of {step} could not be run by cwltool, or has failed:\n{said}")
    outputs = json.loads(done.stdout)
    if not isinstance(outputs, dict):
        raise ToolError(f"the tool of {step} has no outputs")
    return outputs
