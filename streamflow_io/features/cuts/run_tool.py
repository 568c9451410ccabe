"""Runs the tool of one step of a workflow, with cwltool: neither StreamFlow nor we have a part in what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamflow_io.hints.cwl import file_of

# `-m cwltool` ends with 0 whatever happens.
_CWLTOOL = "import sys; from cwltool.main import main; sys.exit(main())"


class ToolError(Exception):
    """Why the tool could not be run, or has failed."""


def run_tool(document: str, step: str, inputs: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Run a tool to its end.

    :param document: the URI of the workflow
    :param step: its path; not of a workflow in it
    :param inputs: of the tool, as in CWL
    :param directory: where its outputs are put; the directory above it exists
    :return: its outputs, as in CWL
    :raises ToolError: if there are none
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
