"""Says before a run that its files will not fit, if the last run of the workflow needed more space than there is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamflow.core.deployment import LocalTarget
from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded
from streamflow_io.records.reader import last_disk_peak
from streamflow_io.wording import size_text


def warn_of_little_space(workflow: str, config: Mapping[str, Any]) -> None:
    """Warn if the last run of a workflow needed more space than is free. Raises nothing.

    Only runs on the driver's node are judged: where other locations keep their files is not known before the run.

    :param workflow: the CWL file, as records have it
    :param config: the StreamFlow file
    """
    deployments = config.get("deployments", {}).values()
    if any(each["type"] != "local" or each.get("workdir") for each in deployments):
        return
    try:
        peak, place = last_disk_peak(workflow), _existing(Path(LocalTarget().workdir))
        free = os.statvfs(place)
    except (OSError, ValueError):
        return
    if peak is not None and (text := too_little(peak, free.f_bavail * free.f_frsize, str(place))) is not None:
        logger.warning(coded(text, Code.LITTLE_SPACE))


def too_little(peak: int, free: int, place: str) -> str | None:
    """Say that bytes may not fit. None: nothing is said, because there is room.

    :param peak: bytes that the directories of jobs held at most
    """
    if peak <= free:
        return None
    return (
        f"The directories of jobs held at most {size_text(peak)} in the last run of this workflow, and "
        f"{size_text(free)} are free at {place}: this run may not fit"
    )


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())
