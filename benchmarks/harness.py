"""Runs a workload: all variants in turn, again and again."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from .model import Machine, Report, Sample, VariantReport, commit_here, evaluate
from .processes import CommandError
from .workload import Outcome, Variant, Workload

_LARGE = 2**20


def run_workload(workload: Workload, repetitions: int, announce: Callable[[str], None] = lambda _: None) -> Report:
    """Run the variants of a workload interleaved (A B C A B C ...), below a temporary directory that is removed.

    :param announce: told what is run next
    :raises CommandError: if a run fails; the message names the variant
    """
    samples: dict[str, list[Sample]] = defaultdict(list)
    outputs: dict[str, set[str]] = defaultdict(set)
    notes: dict[str, None] = {}
    date, commit, machine = datetime.now(timezone.utc).replace(microsecond=0), commit_here(), Machine.here()
    with tempfile.TemporaryDirectory(prefix=f"benchmark-{workload.name}-") as name:
        base = Path(name).resolve()
        (inputs := base / "input").mkdir()
        variants = workload.prepare(inputs)
        available = [variant for variant in variants if variant.skipped is None]
        for variant in available:
            if variant.verify is not None:
                announce(f"verification: {variant.name}")
                with _directory(base, variant) as directory:
                    variant.verify(directory)
        for repetition in range(repetitions):
            for variant in available:
                announce(f"repetition {repetition + 1} of {repetitions}: {variant.name}")
                outcome = _run(base, variant)
                samples[variant.name].append(outcome.sample)
                notes.update(dict.fromkeys(outcome.notes))
                for label, digest in outcome.outputs.items():
                    outputs[label].add(digest)
    reports = tuple(
        VariantReport(name=variant.name, skipped=variant.skipped, samples=tuple(samples[variant.name]))
        for variant in variants
    )
    return Report(
        name=workload.name,
        date=date,
        commit=commit,
        machine=machine,
        repetitions=repetitions,
        notes=tuple(notes),
        variants=reports,
        results=tuple(evaluate(comparison, reports) for comparison in workload.comparisons),
        differing=tuple(sorted(label for label, digests in outputs.items() if len(digests) > 1)),
    )


def _run(base: Path, variant: Variant) -> Outcome:
    with _directory(base, variant) as directory:
        return variant.run(directory)


@contextmanager
def _directory(base: Path, variant: Variant) -> Iterator[Path]:
    directory = base / "run"
    directory.mkdir()
    number = len(list(base.iterdir()))
    # What the run before left to be written to the disk must not slow down this one.
    os.sync()
    try:
        yield directory
    except CommandError as error:
        raise CommandError(f"{variant.name}: {error}") from None
    finally:
        _free(directory)
        directory.rename(base / f"run-{number}")


def _free(directory: Path) -> None:
    """Free the space of a run. Small files stay until the end of the workload.

    ext4 uses the number of a removed file again only after minutes. A process that makes files looks past all of these
    numbers, so that each run would pay for the files of earlier runs.
    """
    for parent, _, names in os.walk(directory):
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink() and path.is_file() and path.stat().st_size >= _LARGE:
                path.unlink()
