"""`streamflow-io learned export`: proofs of streaming inputs, as an annotations file for others. Nothing is run."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console

from streamflow_io.engine.plan import Plan
from streamflow_io.hints.annotations_text import scalar
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.models import ProvenInput
from streamflow_io.hints.yaml_files import read_scheduler_config
from streamflow_io.records.learned.proofs import Proof
from streamflow_io.wording import counted

from .console import SafeConsole, add_output_arguments, output_of, say, write_output
from .plan import plan_workflow


class Exported(Struct, frozen=True):
    """An annotations file with proofs.

    :ivar text: the content of the file
    :ivar output: the file that was written. None: the content is printed
    """

    proven: Sequence[ProvenInput]
    text: str
    output: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether anything is proven."""
        return bool(self.proven)

    def to_json(self) -> dict[str, Any]:
        return {
            "output": None if self.output is None else str(self.output),
            "proven": [entry.model_dump(mode="json") for entry in self.proven],
        }

    def show(self, console: Console) -> None:
        if not self.proven:
            # Standard output may be redirected into the file.
            text = "Nothing is proven of this workflow yet: run it, best with `rehearse: wait`"
            say(SafeConsole(stderr=True), text, "yellow")
        elif self.output is None:
            # The console would fold the text at the width of the terminal.
            console.file.write(self.text)
        else:
            say(console, f"{os.path.relpath(self.output)}: {counted(len(self.proven), 'proof')}", "bold")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streamflow_file", metavar="STREAMFLOW_FILE", type=Path, help="the StreamFlow file, as for `streamflow run`"
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> Exported:
    """Write or print the proofs about a workflow's inputs.

    :raises HintErrors: if a file, the workflow or a hint has mistakes, or the output cannot be written
    """
    output = output_of(arguments)
    streamflow_file: Path = arguments.streamflow_file
    plan = plan_workflow(streamflow_file, arguments.workflow)
    scheduler = read_scheduler_config(streamflow_file)
    if scheduler is None or scheduler.streaming != "auto" or scheduler.runtime != "embedded":
        field = "scheduling.scheduler.config"
        raise HintErrors.one(streamflow_file, field, "nothing is proven for it", "`streaming: auto`")
    found = list(_proven(plan))
    proven = [entry for entry, _ in found]
    text = "".join(f"{line}\n" for line in _lines(found))
    if output is not None and proven:
        write_output(output, text)
    return Exported(proven, text, output)


def _proven(plan: Plan) -> Iterator[tuple[ProvenInput, Proof]]:
    for step, candidate in plan.proofs.candidates.items():
        for proof in plan.proofs.known or ():
            key = proof.key
            is_of = key.kind == "reads" and key.tool == candidate.tool and key.port in candidate.inputs
            if is_of and proof.way is not None:
                path = port_path(step, key.port)
                entry = ProvenInput(
                    input=path,
                    read=proof.way,
                    first=proof.excerpt,
                    extents=proof.extents,
                    beside=proof.beside,
                    tool=key.tool,
                    options=key.options,
                )
                yield entry, proof


def _lines(found: Sequence[tuple[ProvenInput, Proof]]) -> Iterator[str]:
    yield "# What was proven to stream: `streamflow-io learned export`. To use it, in the StreamFlow file:"
    yield "#   scheduler: {type: sfio.io-aware, config: {streaming: auto, annotations: THIS_FILE}}"
    yield "# or add it to the annotations file that is named there."
    yield "# An entry holds for the same tool, programs and options; other inputs are learned as before."
    yield "proven:"
    for entry, proof in found:
        if proof.runs:
            yield f"  # it has streamed in {counted(proof.runs, 'job')}"
        yield f"  - input: {scalar(entry.input)}"
        yield f"    read: {entry.read}"
        if entry.first is not None:
            yield f"    first: {entry.first}"
        yield f"    extents: {json.dumps(entry.extents)}"
        if entry.beside:
            yield f"    beside: {json.dumps(entry.beside)}"
        # In quotes, because digits alone would be a number.
        yield f'    tool: "{entry.tool}"'
        yield f'    options: "{entry.options}"'
