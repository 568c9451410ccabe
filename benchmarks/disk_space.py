"""The disk space of whole workflows: of the two templates that stream, and of the seven workflows of `ordinary`.

The peak is that of all files of a run. At the end of a run its results are there twice: StreamFlow has copied them.
Removal alone cannot halve the peak of the templates. Steps that stream run at the same time, and so their files exist
at the same time: at least 0.84 of all files of variant-calling, and 0.91 of 1000genome. One after the other, `align`
alone needs 0.75. A window removes what is read. In 1000genome, `committed: on_close` and results exclude windows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from .auto import without_hints
from .intermediates import measured
from .model import Comparison, Sample
from .ordinary import ORDINARY_NAMES, annotated_workflows, named
from .processes import CommandError
from .templates import annotated_templates
from .workflows import JSON, RESULT, StreamFlowRun
from .workload import Outcome, Variant, Workload

_TEMPLATES = ("1000genome", "variant-calling")
_REMOVE, _LEARNING, _FORECAST = "remove", "first run with auto and remove", "forecast"
#: The configurations of the scheduler; none: StreamFlow without the plugin.
_WAYS: Mapping[str, Mapping[str, JSON] | None] = {
    "plain": None,
    "keep": {},
    _REMOVE: {"intermediates": "remove"},
    "window": {"intermediates": "window"},
    _LEARNING: {"streaming": "auto", "intermediates": "remove"},
}
_ANNOTATED = ("plain", "keep", _REMOVE, "window")


def _prepare(directory: Path) -> Sequence[Variant]:
    templates = annotated_templates(directory)
    ordinary, why = annotated_workflows(directory)
    variants = [each for name, run in templates.items() for each in _variants(name, run, _ANNOTATED)]
    for name, run in templates.items():
        bare = without_hints(run.workflow.parent, directory) / run.workflow.name
        variants += _variants(name, replace(run, workflow=bare), (_LEARNING,))
    variants += [each for name, run in ordinary.items() for each in _variants(name, run, ("plain", "window"), why)]
    forecast = {name: replace(run, scheduler=_WAYS[_REMOVE]) for name, run in ordinary.items()}
    return [*variants, Variant(_FORECAST, lambda place: _forecast(place, forecast), skipped=why)]


def _variants(name: str, run: StreamFlowRun, ways: Iterable[str], why: str | None = None) -> Iterator[Variant]:
    for way in ways:
        running = measured(named(name, replace(run, scheduler=_WAYS[way])))
        yield Variant(f"{name}: {way}", running, skipped=why)


def _forecast(directory: Path, runs: Mapping[str, StreamFlowRun]) -> Outcome:
    """Run each workflow twice. The measure is how wrong the forecast was that the second run had of the first."""
    outputs, samples, errors = dict[str, str](), list[Sample](), list[float]()
    for name, run in runs.items():
        places = [directory / f"{name}-{number}" for number in range(2)]
        for number, place in enumerate(places):
            place.mkdir()
            if number:
                (places[0] / "data").rename(place / "data")
            outcome = run.run(place)
            samples.append(outcome.sample)
        outputs[name] = outcome.outputs[RESULT]
        errors += _errors(places[1])
    if len(errors) < len(runs):
        raise CommandError(f"{len(errors)} of {len(runs)} workflows had a forecast")
    walls, windows = ([getattr(each, what) for each in samples] for what in ("wall", "window"))
    return Outcome(Sample(wall=sum(walls), window=sum(windows), further={"error": median(errors)}), outputs)


def _errors(directory: Path) -> Iterator[float]:
    for file in (directory / "data" / "streamflow-io" / "runs").glob("*/telemetry.jsonl"):
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if record["event"] == "disk" and (expected := record.get("expectedPeak")) is not None:
                yield abs(expected - record["peak"]) / record["peak"]


def _comparisons() -> Iterator[Comparison]:
    def compare(what: str, measure: str, name: str, way: str, base: str | None, at_most: float | None) -> Comparison:
        return Comparison(
            name=f"{name}: {what}{way}{'' if base is None else f' / {base}'}",
            measure=measure,
            variant=f"{name}: {way}",
            baseline=None if base is None else f"{name}: {base}",
            at_most=at_most,
        )

    for name in _TEMPLATES:
        yield compare("largest files of a run, ", "peak_mb", name, _REMOVE, "keep", 0.5)
        yield compare("largest files of a run, ", "peak_mb", name, "window", "keep", 0.5)
        yield compare("largest files of a run, ", "peak_mb", name, _LEARNING, "plain", None)
        yield compare("largest files of a run, MB, ", "peak_mb", name, "keep", None, None)
        yield compare("left beside the results, MB, ", "left_mb", name, _REMOVE, None, 1.0)
        yield compare("", "wall", name, _REMOVE, "keep", 1.01)
    for name in (*_TEMPLATES, *ORDINARY_NAMES):
        yield compare("written to the device, ", "written_mb", name, "window", "plain", 0.3)
        yield compare("", "wall", name, "window", "plain", 1.0)
    yield Comparison(name="median error of the forecast of the peak", measure="error", variant=_FORECAST, at_most=0.1)


DISK_SPACE = Workload(
    "disk-space",
    "the templates 1000genome and variant-calling, and those of ordinary: peaks, bytes written, forecasts",
    _prepare,
    [*_comparisons()],
)
