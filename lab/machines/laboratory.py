"""Start laboratories: real clusters and engines of containers, each in namespaces of its own.

So nothing of them can stay behind.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from lab.machines.images import IMAGES
from lab.machines.keeper import CGROUPS, NAMESPACES, remove

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 60.0
LINK_MEGABITS = 200
_CONTAINERS = ("-m", "lab.machines.containers")
_KUBERNETES = ("-m", "lab.machines.kubernetes")
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATH = f"{os.environ['PATH']}:{_SYSTEM}"
_DAEMONS = ("slurmctld", "slurmd", "munged", "sshd")
_CLIENTS = ("sbatch", "squeue", "scontrol", "sinfo", "ssh-keygen", "ip", "tc", "hostname", "free", "python3")
GLUSTERFS = ("glusterd", "gluster", "glusterfs", "mount.glusterfs")
_NAMESPACES = ("unshare", "nsenter", "setpriv", "mount")
CLUSTERS = (*_DAEMONS, *_CLIENTS, *_NAMESPACES, "pivot_root")
DOCKER = ("docker", "dockerd", "containerd", "runc", "iptables", "busybox", "ip", "dpkg-query", "sshd", *_NAMESPACES)
PODS = ("ip", "busybox", "hostname", "tar", "env", *_NAMESPACES, "pivot_root")
PODMAN = ("podman", "conmon", "runc", "catatonit")
# What laboratories are made of.
_MOUNTS = "mount -t tmpfs none /tmp && mkdir /tmp/usr && mount -o bind,ro /usr /tmp/usr"
_BRIDGE = "ip link add bridge type bridge && ip link add one type veth peer name other"
_SHAPING = "tc qdisc add dev one root tbf rate 1mbit burst 32kb latency 50ms"
_OVERLAY = "mkdir /tmp/w /tmp/u && mount -t overlay -o lowerdir=/usr,upperdir=/tmp/u,workdir=/tmp/w none /tmp/usr"


class LaboratoryError(Exception):
    """A laboratory could not be started; nothing is left of it."""


@dataclass(frozen=True)
class Laboratory:
    """A laboratory that runs.

    :ivar directory: what it keeps, and what is shared between it and us
    :ivar pid: a process in its namespaces
    """

    directory: Path
    pid: int

    @property
    def network(self) -> Path:
        """The network of its namespaces."""
        return Path(f"/proc/{self.pid}/ns/net")

    @property
    def mounts(self) -> Path:
        """The mounts of its namespaces."""
        return Path(f"/proc/{self.pid}/ns/mnt")

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that run it in the network of the laboratory, for no longer than this process
        runs.
        """
        return ("setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={self.network}", "--")

    def login(self, address: str, command: str) -> tuple[str, ...]:
        """The words, without the prefix, that run a shell's command where one logs in by SSH."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        words = (word for option in options for word in ("-o", option))
        return ("ssh", "-i", str(self.directory / "key"), *words, f"root@{address}", command)

    @contextlib.contextmanager
    def without_network(self, name: str) -> Iterator[None]:
        """Take the link of a host or of a node down.

        :param name: of the host or of the node
        """
        self.run("ip", "link", "set", name, "down")
        try:
            yield
        finally:
            self.run("ip", "link", "set", name, "up")

    def run(self, *command: object, **environment: str) -> str:
        """Run a command in its network, and return what it prints.

        :raises subprocess.CalledProcessError: if it fails
        """
        return subprocess.run(
            [*self.prefix, *map(str, command)],
            env={**os.environ, "PATH": _PATH, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=20,
            check=True,
            text=True,
        ).stdout


def missing_programs(programs: Iterable[str] = CLUSTERS) -> list[str]:
    """The programs that laboratories need, and the system does not have."""
    return [name for name in programs if shutil.which(name, path=_PATH) is None]


def obstacle() -> str | None:
    """Why there can be no clusters on this machine, if so."""
    return _obstacle(CLUSTERS, _MOUNTS, _BRIDGE, _SHAPING)


def containers_obstacle() -> str | None:
    """Why there can be no engines of containers on this machine, if so."""
    if (reason := _obstacle(DOCKER, _MOUNTS, _BRIDGE, _OVERLAY)) is not None:
        return reason
    return None if os.access(CGROUPS, os.W_OK) else f"{CGROUPS} cannot be written"


def pods_obstacle() -> str | None:
    """Why there can be no pods on this machine, if so."""
    return _obstacle(PODS, _MOUNTS, _BRIDGE)


def podman_obstacle() -> str | None:
    """Why there is no podman where there are engines of containers, if so."""
    missing = missing_programs(PODMAN)
    return f"needs programs that are not installed: {', '.join(missing)}" if missing else None


def _obstacle(programs: Iterable[str], *kernel: str) -> str | None:
    if os.geteuid() != 0:
        return "needs root, for namespaces of networks and mounts"
    if missing := missing_programs(programs):
        return f"needs programs that are not installed: {', '.join(missing)}"
    attempt = subprocess.run(
        [*NAMESPACES, "sh", "-c", " && ".join(kernel)],
        env={**os.environ, "PATH": _PATH},
        capture_output=True,
        timeout=30,
        text=True,
    )
    reason = attempt.stderr.strip().replace("\n", "; ")
    return f"the kernel, or the container, does not let us: {reason}" if attempt.returncode else None


def slurm_obstacle() -> str | None:
    """Why there can be no Slurm on this machine although there can be laboratories, if so."""
    cgroups = Path("/sys/fs/cgroup")
    if not cgroups.is_dir() or not any(cgroups.iterdir()):
        return f"slurmd starts only where cgroups are mounted, and {cgroups} is empty"
    return None


def start_slurm(is_distributed: bool = False) -> AbstractContextManager[Laboratory]:
    """A Slurm: :mod:`lab.machines.slurm`. Raises as :func:`laboratory`.

    :param is_distributed: whether there is a distributed file system, too
    """
    return laboratory("-m", "lab.machines.slurm", *(["--distributed"] if is_distributed else []))


def start_hosts() -> AbstractContextManager[Laboratory]:
    """SSH hosts: :mod:`lab.machines.hosts`. Raises as :func:`laboratory`."""
    return laboratory("-m", "lab.machines.hosts", str(LINK_MEGABITS))


def start_containers(images: Iterable[str] = IMAGES) -> AbstractContextManager[Laboratory]:
    """Engines of containers: :mod:`lab.machines.containers`. Raises as :func:`laboratory`.

    :param images: those that they have, of :data:`lab.machines.images.IMAGES`, and at least the one of busybox
    """
    return laboratory(*_CONTAINERS, ",".join(images))


def keep_containers(process: int, images: Iterable[str] = IMAGES) -> Laboratory:
    """Start the same, without a need to remove it: the laboratory ends with a process. Raises as :func:`laboratory`."""
    return _keep(process, (*_CONTAINERS, ",".join(images)))


def keep_pods(process: int) -> Laboratory:
    """A stand-in for Kubernetes, :mod:`lab.machines.kubernetes`, until a process has ended.

    :raises LaboratoryError: as :func:`laboratory`
    """
    return _keep(process, _KUBERNETES)


def _keep(process: int, program: Iterable[str]) -> Laboratory:
    directory = _make_directory()
    ended = os.pidfd_open(process)
    try:
        keeper = _start_keeper(directory, program, ended)
    finally:
        os.close(ended)
    try:
        return Laboratory(directory, _ready(keeper, directory))
    except BaseException:
        keeper.kill()
        keeper.wait()
        remove(directory)
        raise


@contextlib.contextmanager
def laboratory(*program: str) -> Iterator[Laboratory]:
    """Start a laboratory and wait until it is ready; remove it at the end.

    :param program: arguments of Python: process 1 of the laboratory. It gets the directory, too, and prints `ready`
    :raises LaboratoryError: if it is not ready in time, with what it printed
    """
    directory = _make_directory()
    keeper = _start_keeper(directory, program, subprocess.PIPE)
    try:
        yield Laboratory(directory, _ready(keeper, directory))
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(60)
        assert keeper.stdout is not None
        keeper.stdout.close()
        remove(directory)  # if the keeper was killed


def _make_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="sfio-e2e-"))
    directory.chmod(0o755)  # munged looks at it
    return directory


def _start_keeper(directory: Path, program: Iterable[str], wanted: int) -> subprocess.Popen[bytes]:
    """Start what keeps a laboratory until it can read from `wanted`, or that ends."""
    python = (sys.executable, "-S", "-E")  # starts in a few milliseconds
    return subprocess.Popen(
        [*python, "-m", "lab.machines.keeper", directory, *python, *program, directory],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": _PATH},
        stdin=wanted,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )


def _ready(keeper: subprocess.Popen[bytes], directory: Path) -> int:
    """Wait until a laboratory is ready; return the process that its keeper names."""
    assert keeper.stdout is not None
    printed = b""
    end = time.monotonic() + START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(keeper.stdout, selectors.EVENT_READ)
        while not printed.endswith(b"\nready\n"):
            if not selector.select(end - time.monotonic()) or not (more := os.read(keeper.stdout.fileno(), 65536)):
                logs = [f"{path.name}:\n{path.read_text()[-1000:]}" for path in sorted(directory.glob("*.log"))]
                what = "\n".join([printed.decode(), *logs])
                raise LaboratoryError(f"The laboratory has ended, or is not ready in {START_SECONDS:g} s:\n{what}")
            printed += more
    return int(printed.split()[0])
