"""A stand-in for capio_server. `CAPIO_STAND_IN` says how it behaves, in words separated by spaces:

`mute`: never says that it has started; `slow`: only after a second; `error`: says an error, and ends; `deaf`: ignores
SIGTERM; `untidy`: leaves all it has in shared memory; `dies=PATH`: ends at once, as in a crash, when that file is there
(and it is not the server of a trial).
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
    if not os.path.isdir(os.environ["CAPIO_DIR"]) or os.environ["CAPIO_WORKFLOW_NAME"] != name:
        sys.exit("Fatal: CAPIO_DIR or CAPIO_WORKFLOW_NAME is wrong")
    (canary := SHARED / name).touch(exist_ok=False)
    closes = re.search(r"on_close:(\d+)", configuration)
    (SHARED / f"{name}_number").write_text(closes[1] if closes else "1")
    (SHARED / f"sem.{name}_sem_num_elems_request_buffer").touch()
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
    deadly = [Path(word.removeprefix("dies=")) for word in behaviour if word.startswith("dies=")]
    is_trial = '"sfio.reader"' in configuration
    while True:
        time.sleep(0.01)
        if not is_trial and any(path.exists() for path in deadly):
            print("terminate called after throwing an instance of 'std::runtime_error'", flush=True)
            os._exit(134)


if __name__ == "__main__":
    main()
