"""The cost of a watched run, how soon a stream that stands is seen, and how right the estimate of the saving is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from .chain import DATA, FILE, STDOUT, STDOUT_NAME
from .model import Comparison
from .overhead import WIDTH, byte_stream_hints, tiny_jobs
from .processes import CommandError
from .templates import GENOMES, prepare_genotypes, prepare_variant_calling, variants_digest
from .workflows import JSON, RESULT, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

_TERMINAL = (sys.executable, str(Path(__file__).with_name("terminal.py")))
_WATCH = (sys.executable, "-m", "streamflow_io.cli", "watch")
_FACTS = "terminal.json"
# Both in seconds.
_MOVES, _STANDS = 3, 6
# A run has to be there before one can look at it.
_AS_SOON_AS_IT_RUNS = 'until [ -s data/streamflow-io/runs/*/telemetry.jsonl ]; do sleep 0.05; done; exec "$@"'
_TAKEN = re.compile(r"This run has taken ([\d,.]+) s")
_OTHERWISE = re.compile(r"would have taken (?:about|at least) ([\d,.]+) s")


def _prepare(directory: Path) -> Sequence[Variant]:
    tiny = tiny_jobs(directory / "tiny.cwl", WIDTH)
    hints: Mapping[str, JSON] = {"annotations": str(byte_stream_hints(directory / "stream.yml"))}
    standing = _standing(directory / "standing.cwl")
    return (
        Variant("nobody looks", partial(_on_terminal, tiny, hints)),
        Variant("watch", partial(_watched, tiny, hints)),
        Variant(
            "a stream stands",
            partial(_sees_that_it_stands, standing),
            verify=StreamFlowRun(standing, {}, ["stream"]).verify,
        ),
        *_estimates(directory),
    )


def _on_terminal(workflow: Path, scheduler: Mapping[str, JSON], directory: Path) -> Outcome:
    prefix = (*_TERMINAL, str(directory / _FACTS), "")
    site = Site(deployments={}, bindings={}, prefix=prefix, containers=False)
    return StreamFlowRun(workflow, scheduler, site=site).run(directory)


def _watched(workflow: Path, scheduler: Mapping[str, JSON], directory: Path) -> Outcome:
    """Run a workflow, with a watcher at another terminal."""
    outcome, seen = _with_watch(StreamFlowRun(workflow, scheduler), directory, "")
    sample = outcome.sample
    further = {**sample.further, "watch_cores": seen.cores}
    return replace(outcome, sample=sample.model_copy(update={"further": further}))


@dataclass(frozen=True)
class _Seen:
    """The facts that a terminal shows.

    :ivar cores: that the command has used, in the mean, when it had started
    :ivar at: when a text came onto its screen, in seconds since the epoch
    """

    cores: float
    at: Sequence[float]


def _with_watch(way: StreamFlowRun, directory: Path, text: str) -> tuple[Outcome, _Seen]:
    """Run a workflow, and return what the terminal of a watcher has shown."""
    facts = directory / _FACTS
    at_terminal = [*_TERMINAL, str(facts), text, *_WATCH]
    outcome = way.run(directory, beside=[["bash", "-c", _AS_SOON_AS_IT_RUNS, "bash", *at_terminal]])
    return outcome, _Seen(**json.loads(facts.read_text(encoding="utf-8")))


def _standing(path: Path) -> Path:
    """Write a workflow whose byte stream moves for some seconds, and then stands for some."""
    moves = f'for i in $(seq {10 * _MOVES}); do head -c 1000000 /dev/zero; sleep 0.1; done; date +%s.%N > "$0"'
    command = ["sh", "-c", f"{moves}; sleep {_STANDS}; echo", str(_since(path))]
    writes = tool(command, {}, {"out": STDOUT}, stdout=STDOUT_NAME)
    reads = tool(["wc", "-c"], {"in": FILE}, {"count": "stdout"}, stdin="$(inputs.in.path)", stdout="count.txt")
    return write_workflow(
        path,
        inputs={},
        outputs={"count": {"type": "File", "outputSource": "reads/count"}},
        steps={
            "writes": {"run": writes, "in": {}, "out": ["out"]},
            "reads": {"run": reads, "in": {"in": "writes/out"}, "out": ["count"]},
        },
    )


def _since(workflow: Path) -> Path:
    """Where it is written since when it stands."""
    return workflow.with_suffix(".since")


def _sees_that_it_stands(workflow: Path, directory: Path) -> Outcome:
    outcome, seen = _with_watch(StreamFlowRun(workflow, {}), directory, "stalled")
    since = float(_since(workflow).read_text(encoding="utf-8"))
    after = [at - since for at in seen.at if at >= since]
    if not after:
        raise CommandError("nobody has seen that the stream stands")
    sample = outcome.sample.model_copy(update={"further": {"seen_s": after[0]}})
    return Outcome(sample, {"count": outcome.outputs[RESULT]})


def _estimates(directory: Path) -> Sequence[Variant]:
    """Compare the time that a streaming run foretells without streams with the time that such a run takes."""
    calling, pairs = prepare_variant_calling(directory)
    ways = {
        "chain": StreamFlowRun(DATA.write(directory / "chain.cwl"), {}),
        "1000genome": StreamFlowRun(GENOMES / "main.cwl", {}, settings=prepare_genotypes(directory)),
        "variant-calling": StreamFlowRun(calling, {}, settings=pairs, digest=variants_digest),
    }
    return [
        variant
        for name, way in ways.items()
        for variant in (
            Variant(f"{name}: off", partial(_says, replace(way, scheduler={"runtime": "off"}), _TAKEN, name)),
            Variant(f"{name}: streaming", partial(_says, way, _OTHERWISE, name)),
        )
    ]


def _says(way: StreamFlowRun, pattern: re.Pattern[str], name: str, directory: Path) -> Outcome:
    """A run, and the seconds that it names in its last lines."""
    outcome = way.run(directory)
    log = (directory / "errors.0").read_text(encoding="utf-8") + (directory / "output.0").read_text(encoding="utf-8")
    if (said := pattern.search(log)) is None:
        raise CommandError(f"the run does not say what it was to say: {pattern.pattern}")
    further = {"said_s": float(said[1].replace(",", ""))}
    return Outcome(outcome.sample.model_copy(update={"further": further}), {name: outcome.outputs[RESULT]})


def _of_estimates(name: str) -> list[Comparison]:
    """Check that an estimate is at most a tenth too large or too small."""
    sides = {"variant": f"{name}: streaming", "baseline": f"{name}: off", "measure": "said_s"}
    return [
        Comparison(name=f"{name}: said / taken", at_most=1.10, **sides),
        Comparison(name=f"{name}: said / taken, not less", at_least=0.90, **sides),
    ]


WATCHING = Workload(
    "watching",
    "`overhead` with byte streams while nobody looks, and with `watch`; a stream that stands",
    _prepare,
    (
        Comparison(name="watch / nobody looks", variant="watch", baseline="nobody looks"),
        Comparison(name="watch, cores", measure="watch_cores", variant="watch", at_most=0.01),
        Comparison(name="seconds until `watch` shows it", measure="seen_s", variant="a stream stands", at_most=2.0),
        *(goal for name in ("chain", "1000genome", "variant-calling") for goal in _of_estimates(name)),
    ),
)
