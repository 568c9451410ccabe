"""Process 1 of a laboratory with containers: a real dockerd, and what podman and a stand-in for Singularity need.

    python -S -E -m lab.machines.containers IMAGES DIRECTORY

The socket of dockerd is DIRECTORY/docker.sock; when it ends it is started again, as by systemd. DIRECTORY/podman has a
`docker` that is podman, DIRECTORY/singularity a `singularity`, DIRECTORY/compose a `docker-compose`. IMAGES names the
images of :mod:`lab.machines.images` that the engines have, joined by commas. Podman has only `sfio-busybox`, because
imports into it take long. The engines keep their data in memory. Of the file system they see what the machine sees, but
for what mounts change here: DIRECTORY/noexec, from which no program can be started. Its network accepts SSH at any of
its own addresses. The user there may use the engine, and is not root; the key is DIRECTORY/key.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from lab.machines.hosts import SSHD_CONFIGURATION, generate_key, is_listening
from lab.machines.images import IMAGES, IMPORT
from lab.machines.laboratory import podman_obstacle

HERE = Path(__file__).parent
NETWORK = "10.77.2.1/24"
LOGIN, LOGIN_ID = "sfio", 1500
ADDRESSES = ("127.0.0.1", "127.0.0.2")
DOCKER_OPTIONS = ("--userland-proxy=false", "--shutdown-timeout=2", "--log-level=warn")
#: Has next to nothing in it.
BUSYBOX = "sfio-busybox"
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MEMORY = "mount -t tmpfs -o mode=755 tmpfs"
PREPARATION = f"""\
ip link set lo up
{MEMORY} {{directory}}/data
mount --bind {{directory}}/noexec {{directory}}/noexec
mount -o remount,bind,noexec {{directory}}/noexec
"""
# Where engines keep what is not of one laboratory alone.
COVERED = ("/run", "/var/lib")
# Limits are not raised, which may be forbidden.
PODMAN_CONFIGURATION = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
lock_type = "file"
"""
# A command for processes outside, which have to enter; the command ends when they are killed.
ENTRANCE = """\
#!/bin/sh
test "$(id -u)" = 0 || exec sh '{script}' '{directory}' "$@" # rootless, in a user namespace of its own
read -r pid <'{directory}/pid'
exec nsenter --target "$pid" --mount --net --uts --ipc --pid="/proc/$pid/ns/pid_for_children" --wd="$PWD" \\
    setpriv --pdeathsig KILL sh '{script}' '{directory}' "$@"
"""


def main(images: str, directory: Path) -> None:
    for name in ("data", "noexec"):
        (directory / name).mkdir()
    call(*PREPARATION.format(directory=directory).splitlines())
    archives = write_archives(directory / "data", images.split(","))
    call(*(f"{MEMORY} {place}" for place in COVERED))
    os.environ["DOCKER_HOST"] = f"unix://{directory}/docker.sock"
    daemon = start_docker(directory)
    engines = [["docker", *IMPORT], [*install(directory, "singularity", "singularity"), "import"]]
    importing = [[*words, str(path), path.stem] for path in archives for words in engines]
    if podman_obstacle() is None:
        (directory / "containers.conf").write_text(PODMAN_CONFIGURATION)
        words = [*install(directory, "podman", "docker"), *IMPORT]
        importing += [[*words, str(path), path.stem] for path in archives if path.stem == BUSYBOX]
    start_sshd(directory)
    install_compose(directory)
    while not answers() or not is_listening(ADDRESSES[0]):
        if daemon.poll() is not None:
            sys.exit("dockerd has ended")
        time.sleep(0.05)
    processes = [subprocess.Popen(words) for words in importing]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit("an image cannot be imported")
    for path in archives:
        path.unlink()
    call(f"docker run --rm {BUSYBOX} true")
    print("ready", flush=True)
    while True:  # Orphans are ours.
        if os.wait()[0] == daemon.pid:
            daemon = start_docker(directory)


def write_archives(directory: Path, images: Sequence[str]) -> list[Path]:
    """Images, as archives."""
    paths = []
    for name in images:
        paths.append(directory / f"{name}.tar")
        with tarfile.open(paths[-1], "w") as archive:
            IMAGES[name](archive)
    return paths


def start_docker(directory: Path) -> subprocess.Popen[bytes]:
    """Start dockerd. Its cgroups have the name of the directory."""
    data = directory / "data"
    options = {
        "host": os.environ["DOCKER_HOST"],
        "data-root": data / "docker",
        "exec-root": data / "exec",
        "pidfile": data / "dockerd.pid",
        "cgroup-parent": f"/{directory.name}",
        "bip": NETWORK,
        "group": LOGIN_ID,
    }
    (data / "dockerd.pid").unlink(missing_ok=True)
    with (directory / "dockerd.log").open("a") as log:
        return subprocess.Popen(
            ["dockerd", *(f"--{name}={value}" for name, value in options.items()), *DOCKER_OPTIONS],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def start_sshd(directory: Path) -> None:
    """Start what one logs in to. The user of a login finds the engines."""
    generate_key(directory / "key")
    place = Path("/run/sshd")
    place.mkdir()
    generate_key(place / "host_key")
    shutil.copyfile(directory / "key.pub", place / "authorized_keys")
    users = Path("/etc/passwd").read_text() + f"{LOGIN}:*:{LOGIN_ID}:{LOGIN_ID}::/:/bin/sh\n"
    (directory / "passwd").write_text(users)
    call(f"mount --bind {directory}/passwd /etc/passwd")
    path = f"{install_for_hosts(directory)}:{SYSTEM}"
    variables = f"SetEnv=DOCKER_HOST={os.environ['DOCKER_HOST']} PATH={path}"
    words = ["/usr/sbin/sshd", "-D", "-e", "-f", str(SSHD_CONFIGURATION), "-o", variables]
    with (directory / "sshd.log").open("w") as log:
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def answers() -> bool:
    return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0


def install(directory: Path, engine: str, command: str) -> list[str]:
    """Make an engine's command for those outside; return the words of that for us."""
    script = HERE / f"{engine}.sh"
    path = directory / engine / command
    path.parent.mkdir()
    path.write_text(ENTRANCE.format(directory=directory, script=script))
    path.chmod(0o755)
    return ["sh", str(script), str(directory)]


def install_for_hosts(directory: Path) -> Path:
    """Make the command of Singularity for users that log in; return its path."""
    path = directory / "host" / "singularity"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nexec sh -eu '{HERE}/singularity.sh' '{directory}' \"$@\"\n")
    path.chmod(0o755)
    return path.parent


def install_compose(directory: Path) -> None:
    """Make the command, which needs nothing of here but the socket of dockerd."""
    path = directory / "compose" / "docker-compose"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S -E '{HERE}/compose.py' \"$@\"\n")
    path.chmod(0o755)


def call(*commands: str) -> None:
    for command in commands:
        subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
