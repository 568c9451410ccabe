"""Process 1 of a laboratory with SSH hosts, each with a network, processes and a file system of its own.

    python -S -E -m lab.machines.hosts MEGABITS DIRECTORY

They hang on one bridge, by links of MEGABITS per second in both directions. A host sees the system's programs, its own
/scratch, and DIRECTORY/shared, which all hosts and users of the laboratory share. It sees nothing else of DIRECTORY.
Its login is root, with the key DIRECTORY/key.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from lab.machines.keeper import NAMESPACES

NETWORK = "10.77.0"
ADDRESSES = (f"{NETWORK}.11", f"{NETWORK}.12")
BURST_SECONDS = 0.01
HERE = Path(__file__).parent
SSHD_CONFIGURATION = HERE / "sshd_config"


def main(megabits: int, directory: Path) -> None:
    (directory / "shared").mkdir()
    generate_key(directory / "key")
    make_bridge()
    shape = link_shape(megabits)
    hosts = [start_host(directory, f"host{number}", address, shape) for number, address in enumerate(ADDRESSES, 1)]
    for host, address in zip(hosts, ADDRESSES, strict=True):
        while not is_listening(address):
            if host.poll() is not None:
                sys.exit(f"{address} has ended")
            time.sleep(0.05)
    print("ready", flush=True)
    while True:  # Orphans are ours.
        os.wait()


def make_bridge() -> None:
    """Make the network that joins the hosts, with the address 1 in it for the laboratory itself."""
    call("ip link set lo up")
    # With an address of its own: else it has that of a link, and another one when that host is gone.
    call("ip link add bridge address 02:00:00:00:00:01 type bridge forward_delay 0")
    call(f"ip addr add {NETWORK}.1/24 dev bridge")
    call("ip link set bridge up")


def link_shape(megabits: int) -> str:
    """The queueing discipline at each end of a link, for `tc`."""
    burst = int(megabits * 1e6 / 8 * BURST_SECONDS)
    return f"root tbf rate {megabits}mbit burst {burst}b latency 50ms"


def start_host(directory: Path, name: str, address: str, shape: str) -> subprocess.Popen[bytes]:
    """Start a host; its first process waits for the link."""
    (directory / name).mkdir()
    generate_key(directory / f"{name}.key")
    with (directory / f"{name}.log").open("w") as log:
        host = subprocess.Popen(
            [*NAMESPACES, "sh", "-eu", HERE / "host.sh", name, address, directory],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    join(host, name, address, shape)
    return host


def join(host: subprocess.Popen[bytes], name: str, address: str, shape: str) -> None:
    """Join a host to the bridge as soon as it has a network of its own.

    :param name: of the link
    """
    network = Path(f"/proc/{host.pid}/ns/net")
    while os.readlink(network) == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    inside = f"nsenter --net={network} --"
    call(f"ip link add {name} type veth peer name eth0 netns {host.pid}")
    call(f"tc qdisc add dev {name} {shape}")
    call(f"ip link set {name} master bridge up")
    call(f"{inside} tc qdisc add dev eth0 {shape}")
    call(f"{inside} ip addr add {address}/24 dev eth0")
    call(f"{inside} ip link set lo up")
    call(f"{inside} ip link set eth0 up")


def generate_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.stem, "-f", path], check=True)


def is_listening(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1):
            return True
    except OSError:
        return False


def call(command: str) -> None:
    subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
