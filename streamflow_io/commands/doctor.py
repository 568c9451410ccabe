"""`streamflow-io doctor`: features that work on this machine, and why others do not.

Features are tried where possible, with the program that runs jobs, in a directory like that of a job.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import asdict, replace
from rich.text import Text
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.files import stranger
from streamflow_io.grouping import grouped
from streamflow_io.records.runs import data_directory
from streamflow_io.runtime.allocation.find_allocation import AllocationChoice, current_allocation, is_in_allocation
from streamflow_io.runtime.embedded import EmbeddedRuntime, find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.self_test import LocationFinding, ThisMachine, self_test
from streamflow_io.storage.intermediates.memory import memory_here
from streamflow_io.storage.sharing.directory import check_locks
from streamflow_io.storage.sharing.other_entries import SharingError

from .console import PlainResult, table
from .doctor_space import memory_finding
from .javascript import find_engine

_SECONDS = 15.0
_MOST_ROWS = 3
_STREAMFLOW_FILE = "streamflow.yml"
_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


def answer(subject: str, findings: Sequence[LocationFinding]) -> PlainResult:
    """Return all findings about a subject. The result is ok unless one of them says no."""
    words = {True: Text("yes"), False: Text("no", "bold red"), None: Text("no", "yellow")}
    rows = []
    for finding in shown_findings(findings):
        without = f"\n{finding.otherwise}" if finding.works is not True and finding.otherwise else ""
        rows.append((finding.name, words[finding.works], f"{finding.detail}{without}"))
    made = table(subject, ("", "works", "what was found"), rows)
    ok = all(finding.works is not False for finding in findings)
    return PlainResult({"findings": [asdict(finding) for finding in findings]}, [made], ok)


def shown_findings(findings: Sequence[LocationFinding]) -> list[LocationFinding]:
    """Return the findings that are shown: one for many locations where the same works."""
    alike = grouped(findings, lambda finding: (finding.name.partition(", ")[0], finding.works))
    shown: list[LocationFinding] = []
    for (name, works), some in alike.items():
        if works is True and len(some) > _MOST_ROWS:
            shown.append(
                replace(some[0], name=f"{name}, {len(some):,} locations", detail=f"on the first: {some[0].detail}")
            )
        else:
            shown += some
    return shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor`."""
    parser.add_argument(
        "--workdir",
        metavar="PATH",
        default=tempfile.gettempdir(),
        help="a directory where jobs run: `workdir` of the deployment (default: that of temporary files)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--location",
        metavar="DEPLOYMENT",
        help="look at a deployment of a StreamFlow file instead of this machine: at the place where its jobs run",
    )
    where.add_argument(
        "--image",
        metavar="IMAGE",
        help="look at containers of an image, deployed as for a DockerRequirement",
    )
    parser.add_argument(
        "streamflow_file",
        metavar="STREAMFLOW_FILE",
        nargs="?",
        help=f"the StreamFlow file with that deployment, or with the deployment of containers (default: "
        f"{_STREAMFLOW_FILE})",
    )


def run(arguments: argparse.Namespace) -> PlainResult:
    """Try what works on this machine, at a location, or in containers of an image.

    :raises HintErrors: if the StreamFlow file is not one, or has no such deployment
    """
    if arguments.location is not None:
        from .doctor_location import try_deployment

        path = Path(arguments.streamflow_file or _STREAMFLOW_FILE)
        subject, findings = try_deployment(path, arguments.location)
        return answer(subject, findings)
    if arguments.image is not None:
        from .doctor_image import try_image

        is_there = arguments.streamflow_file is not None or os.path.exists(_STREAMFLOW_FILE)
        path = Path(arguments.streamflow_file or _STREAMFLOW_FILE)
        subject, findings = try_image(path if is_there else None, arguments.image)
        return answer(subject, findings)
    findings = [_plugin(), _runtime()]
    if findings[-1].works:
        findings += [*asyncio.run(_try_here(arguments.workdir)), _work_directory(Path(arguments.workdir))]
    findings += asyncio.run(_allocation())
    return answer("this machine", (*findings, _inotify(), _memory(), _data_directory(), _locks(), _javascript()))


def _plugin() -> LocationFinding:
    version = importlib.metadata.version("streamflow")
    found = importlib.metadata.entry_points(group="unito.streamflow.plugin")
    if any(point.value.startswith("streamflow_io.") for point in found):
        return LocationFinding("plugin", True, f"StreamFlow {version} finds the plugin")
    return LocationFinding(
        "plugin", False, f"StreamFlow {version} does not find the plugin", "install streamflow-io beside StreamFlow"
    )


def _runtime() -> LocationFinding:
    name, otherwise = "node runtime", "everything is as with plain StreamFlow"
    try:
        EmbeddedRuntime.check_this_node()
        binary = find_sfio_node()
        version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    except (NodeRuntimeError, OSError, subprocess.SubprocessError) as error:
        return LocationFinding(name, False, str(error), otherwise)
    return LocationFinding(name, True, f"{version} on {platform.system()} {platform.release()}: {binary}")


async def _allocation() -> list[LocationFinding]:
    """Say which allocation this process runs in, if it runs in one."""
    if not is_in_allocation():
        return []
    try:
        allocation = await current_allocation("this process", AllocationChoice())
    except WorkflowExecutionException as error:
        return [LocationFinding("allocation", False, str(error), "no deployment `sfio.allocation` works here")]
    tries = "`streamflow-io doctor --location DEPLOYMENT` tries its nodes, for a deployment `sfio.allocation`"
    return [LocationFinding("allocation", True, f"{allocation.description}. {tries}")]


async def _try_here(workdir: str) -> list[LocationFinding]:
    try:
        with tempfile.TemporaryDirectory(prefix="streamflow-io-doctor-", dir=workdir) as directory:
            runtime = await EmbeddedRuntime.start()
            try:
                real = await asyncio.to_thread(os.path.realpath, directory)
                location = ThisMachine(runtime, PurePosixPath(real), _SECONDS)
                return list(await self_test(location))
            finally:
                await runtime.close()
    except (OSError, NodeRuntimeError) as error:
        return [
            LocationFinding("jobs", False, f"{workdir}: {error}", "name a directory that you can write to: --workdir")
        ]


def _work_directory(directory: Path) -> LocationFinding:
    """Try whether streams are safe in a directory, and in the default work directory of StreamFlow below it."""
    name, otherwise = "work directory", "nothing streams there: `streamflow-io explain SFIO-S026`"
    places = [directory, directory / "streamflow"] if directory == Path(tempfile.gettempdir()) else [directory]
    try:
        whys = [stranger(place, trusts_groups=True) for place in places if place.exists()]
    except OSError as error:
        return LocationFinding(name, None, f"{directory}: {error.strerror}")
    found = [why for why in whys if why is not None]
    if found:
        return LocationFinding(name, False, found[0], otherwise)
    if closed := [place for place in places if place.exists() and not os.access(place, os.W_OK | os.X_OK)]:
        otherwise = "no job can run there: set TMPDIR, or a `workdir` for the deployment"
        return LocationFinding(name, False, f"you may not write to {closed[0]}", otherwise)
    return LocationFinding(name, True, f"no other user can replace files in {directory}")


def _inotify() -> LocationFinding:
    try:
        instances, watches = int(_INSTANCES.read_text()), int(_WATCHES.read_text())
    except (OSError, ValueError) as error:
        return LocationFinding("inotify", False, str(error), "files are committed when their job ends")
    detail = f"{instances} instances, {watches} watches for each user; a job that streams takes one instance"
    few = instances < 4 * (os.cpu_count() or 1)
    return LocationFinding(
        "inotify", not few, detail, "files are committed when their job ends; raise fs.inotify.max_user_instances"
    )


def _memory() -> LocationFinding:
    return memory_finding("memory", {"": memory_here()})


def _data_directory() -> LocationFinding:
    directory, otherwise = data_directory(), "set XDG_DATA_HOME to a directory that you can write to"
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    works = os.access(existing, os.W_OK | os.X_OK)
    return LocationFinding("data directory", works, f"{directory}: learned limits and telemetry", otherwise)


def _locks() -> LocationFinding:
    """Try whether runs can share a storage: a lock of one process must keep out another, where the runs meet."""
    name, otherwise = "shared storages", "each run has all of the bandwidth of a storage for itself"
    directory = data_directory()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix="streamflow-io-doctor-", dir=existing) as tried:
            check_locks(Path(tried) / "lock")
    except (OSError, SharingError) as error:
        return LocationFinding(name, None, f"{existing}: {error}", otherwise)
    return LocationFinding(name, True, f"on {existing} a lock of one process keeps out another", otherwise)


def _javascript() -> LocationFinding:
    engine = find_engine()
    if engine is not None:
        return LocationFinding("JavaScript", True, f"{engine} evaluates expressions of CWL")
    otherwise = "workflows with JavaScript fail, with plain StreamFlow, too: install Node.js"
    return LocationFinding("JavaScript", None, "no Node.js on PATH", otherwise)
