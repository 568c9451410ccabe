"""A stand-in for Docker Compose; not Docker Compose. It knows what StreamFlow calls, with a real docker.

    python3 -S -E compose.py [--file FILE | --project-name NAME]... version | up | ps [SERVICE] | down

FILE is JSON, which is YAML. Of a service it knows `image`, `volumes`, `stdin_open` and `network_mode`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path)
    parser.add_argument("--project-name", default="default")
    parser.add_argument("--format")
    for flag in ("detach", "wait", "short"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("command", choices=("version", "up", "ps", "down"))
    parser.add_argument("service", nargs="?")
    options = parser.parse_intermixed_args()
    project, network = options.project_name, f"{options.project_name}_default"
    services = json.loads(options.file.read_text())["services"] if options.command != "version" else {}
    if options.command == "version":
        print("2.0.0")
    elif options.command == "up":
        docker("network", "create", network)
        for name, service in services.items():
            words = [word for volume in service.get("volumes", ()) for word in ("--volume", volume)]
            words += ["--interactive"] if service.get("stdin_open") else []
            words += ["--network", service.get("network_mode", network)]
            docker("run", "--detach", "--init", "--name", f"{project}-{name}-1", *words, service["image"])
    elif options.command == "ps":
        for name in services:
            if options.service in (None, name):
                print(json.dumps({"Name": f"{project}-{name}-1", "Service": name}))
    else:
        docker("rm", "--force", *(f"{project}-{name}-1" for name in services))
        docker("network", "rm", network)


def docker(*words: str) -> None:
    done = subprocess.run(["docker", *words], stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
