"""Random workflows in which each run has files with windows."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from .blueprint import Blueprint, Given, Link, Output, Step, Type
from .programs import READERS, TRICKLED, WHOLE, WRITERS

#: The environment of runs: the files of these workflows are small.
SMALL_BLOCKS: Final = {"SFIO_NODE_BLOCK": "4096"}
_FILE: Final = Type("File")
_WRITERS: Final = (TRICKLED, TRICKLED, TRICKLED, "stdout", "file")
_READERS: Final = tuple(
    name for name, reader in READERS.items() if (reader.once or reader.wrong) and ("File", 0) in reader.accepts
)


def windowed(blueprint: Blueprint, seed: int, number: int) -> Blueprint:
    """The same workflow with `intermediates: window`, and one or two more steps whose outputs only streams read.

    A window of 16 MB has 15 blocks, so that its job is paused.
    """
    random = Random(f"{seed}:{number}:windowed")
    given = {**blueprint.given, "long": Given(_FILE, {"name": "long.txt", "lines": random.choice((2_000, 20_000))})}
    steps, types, results = [*blueprint.steps], dict(blueprint.types), [*blueprint.results]
    source = "long"
    for level in range(random.choice((2, 2, 3))):
        is_first = level == 0
        writer = random.choice(_WRITERS)
        hint: tuple[tuple[str, str], ...] = ()
        if random.random() < 0.5:
            hint = (("mode", "no_update"), ("window", "16MB"))
        output = Output("o0", writer, streamable=WRITERS[writer].once, hint=hint)
        step = Step(
            f"v{level}", random.choice(WHOLE), _FILE, (("i", Link((source,))),), (output,), streamable=not is_first
        )
        steps.append(step)
        source = step.source_of("o0")
        types[source] = _FILE
    for index in range(random.choice((1, 1, 2))):
        step = Step(
            f"vr{index}", random.choice(_READERS), _FILE, (("i", Link((source,))),), (Output("o0", "file"),),
            streamable=True,
        )  # fmt: skip
        steps.append(step)
        types[step.source_of("o0")] = _FILE
        results.append(Link((step.source_of("o0"),)))
    return with_windows(replace(blueprint, given=given, steps=tuple(steps), types=types, results=tuple(results)))


def with_windows(blueprint: Blueprint) -> Blueprint:
    """The same workflow, where all streams that may have a window have one."""
    config = {**dict(blueprint.config), "intermediates": "window", "observe": False}
    return replace(blueprint, config=tuple(config.items()))
