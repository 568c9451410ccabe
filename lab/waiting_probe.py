"""`streamflow-io storage probe` that waits when its only writer has written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from streamflow_io import cli
from streamflow_io.commands import storage


def main(arguments: list[str]) -> int:
    measure: Callable[..., Any] = vars(storage)["measure"]

    def waiting(path: str, limit: int, seconds: float, announce: Callable[[int, str], None]) -> Any:
        def announced(writers: int, task: str) -> None:
            announce(writers, task)
            if task == "read":
                print("has written", flush=True)
                time.sleep(1000)

        return measure(path, limit, seconds, announced)

    vars(storage)["measure"] = waiting
    return cli.main(arguments)
