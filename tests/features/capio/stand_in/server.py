"""A stand-in for capio_server. `CAPIO_STAND_IN` says how it behaves, in words separated by spaces:

`mute`: never says that it has started; `slow`: only after a second; `error`: says an error, and ends; `once=PATH`: ends
the first time that it is started; `deaf`: ignores SIGTERM; `untidy`: leaves all it has in shared memory; `dies=PATH`:
ends at once, as in a crash, when that file is there; `hangs=APPLICATION`: never answers that application when it writes
into a file or reads; `spoils=APPLICATION`: gives it other bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

SHARED = Path("/dev/shm")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("-c", "--config", required=True)
    configuration = Path(arguments.parse_args().config).read_text()
    name = json.loads(configuration)["name"]
    behaviour = os.environ.get("CAPIO_STAND_IN", "").split()
    for line in ("", "   CAPIO - Cross Application Programmable IO         ", "", "                     V. 1.0.0", ""):
        print(line, flush=True)
    if "error" in behaviour:
        sys.exit("Error: libmpi.so.40 is not what it was")
    if _is_first(behaviour):
        sys.exit("Fatal: a semaphore is gone")
    if not os.path.isdir(os.environ["CAPIO_DIR"]) or os.environ["CAPIO_WORKFLOW_NAME"] != name:
        sys.exit("Fatal: CAPIO_DIR or CAPIO_WORKFLOW_NAME is wrong")
    os.mkdir(f"{os.environ['CAPIO_DIR']}.held")
    (canary := SHARED / name).touch(exist_ok=False)
    closes = re.search(r"on_close:(\d+)", configuration)
    (SHARED / f"{name}_number").write_text(closes[1] if closes else "1")
    (SHARED / f"sem.{name}_sem_num_elems_request_buffer").touch()
    for kind in ("hangs", "spoils"):
        for application in _values(behaviour, kind):
            (SHARED / f"{name}_{kind}_{application}").touch()
    Path(f"files_location_{os.uname().nodename}.txt").touch()

    def end(*_: object) -> None:
        if "untidy" not in behaviour:
            canary.unlink(missing_ok=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in behaviour else end)
    if "slow" in behaviour:
        time.sleep(1)
    if "mute" not in behaviour:
        print(f"\033[1;34m[CAPIO-SERVER > {name}]\033[0m main | Server instance successfully started!", flush=True)
    deadly = [Path(path) for path in _values(behaviour, "dies")]
    while True:
        time.sleep(0.01)
        if any(path.exists() for path in deadly):
            print("terminate called after throwing an instance of 'std::runtime_error'", flush=True)
            os._exit(134)


def _values(behaviour: list[str], key: str) -> list[str]:
    return [word.removeprefix(f"{key}=") for word in behaviour if word.startswith(f"{key}=")]


def _is_first(behaviour: list[str]) -> bool:
    first = [Path(path) for path in _values(behaviour, "once") if not Path(path).exists()]
    for path in first:
        path.touch()
    return bool(first)


if __name__ == "__main__":
    main()
