"""Whether an observed job has split a file, and by which rule that could be declared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from streamflow.log_handler import logger

from streamflow_io.records.job_files import PossibleSplit
from streamflow_io.runtime.node_runtime import NodeRuntime, NodeRuntimeError, seconds_to_compare

_FOUND = 0


async def look_for_splits(
    runtime: NodeRuntime, splits: Iterable[PossibleSplit], found: Callable[[PossibleSplit, dict[str, object]], None]
) -> None:
    """Ask the node where a job has run about what it has written. Never fails.

    :param found: is told each, with the rule
    """
    for split in splits:
        words = [str(runtime.binary), "propose", "--of", split.file, "--directory", split.directory]
        words += ["--names", split.names.names, "--first", str(split.names.first), "--count", str(split.parts)]
        try:
            said, code = await runtime.run(words, seconds_to_compare(split.size))
            if code == _FOUND:
                found(split, json.loads(said))
        except (NodeRuntimeError, ValueError) as error:
            logger.debug(f"{split.port} was not looked at: {error}")
