"""Process 1 of a laboratory with a real Slurm: munged, slurmctld, a slurmd for each node, and the sshd of a login node.

    python -S -E -m lab.machines.slurm [--distributed] DIRECTORY

The configuration is DIRECTORY/slurm.conf, the logs are beside it. One logs in as root at LOGIN, with the key
DIRECTORY/key. Each node has a network, processes and a name of its own. The links to the nodes carry :data:`MEGABITS`.
A node has a file system of its own at DIRECTORY/local, and shares all others. With `--distributed`, DIRECTORY/volume is
a distributed file system. Each node is a client with caches of its own. Where the kernel has cgroups of version 1,
Slurm uses them: a job has the cores and the memory that were given to it, and a step ends with all its processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from lab.machines.glusterfs import HOST, mount_words, start_volume
from lab.machines.hosts import NETWORK, SSHD_CONFIGURATION, generate_key, join, link_shape, make_bridge
from lab.machines.keeper import CGROUPS, NAMESPACES

# Of each node; they need not exist. Memory in MB.
CPUS, MEMORY = 2, 4000
MEGABITS = 1000
LOGIN = f"{NETWORK}.1"
#: The nodes and their addresses.
NODES = {f"n{number}": f"{NETWORK}.{20 + number}" for number in range(1, 5)}
#: The cgroups of version 1 by which Slurm tracks processes, binds them to cores, and limits their memory.
HIERARCHIES = ("freezer", "cpuset", "memory")
# sshd refuses users with a locked account.
PREPARATION = """\
hostname {host}
mount --bind {directory}/hosts /etc/hosts
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
cp {directory}/key.pub /run/sshd/authorized_keys
cp {directory}/host.key /run/sshd/host_key
cp /etc/shadow /run/shadow
sed -i s/^root:[^:]*/root:*/ /run/shadow
mount --bind /run/shadow /etc/shadow
mkdir -m 755 {directory}/local
"""
# Process 1 of a node. slurmd and its jobs see the mounts, and nothing else does. For `reno` see host.sh.
NODE = """\
hostname {name}
echo reno >/proc/sys/net/ipv4/tcp_congestion_control
mount -t tmpfs -o mode=755 {name} {directory}/local
mount -t tmpfs -o mode=1777 {name} /dev/shm
until ip addr show dev eth0 2>/dev/null | grep -q {address}; do sleep 0.02; done
{mounts}
slurmd -D -N {name}
exit # The shell reaps orphans meanwhile.
"""
CONFIGURATION = """\
ClusterName=laboratory
SlurmctldHost={host}({login})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{tasks}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU={memory}
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=1000,bf_interval=1
KillWait=2
InactiveLimit=0
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def main(directory: Path, is_distributed: bool) -> None:
    for key in ("key", "host.key"):
        generate_key(directory / key)
    names = {"localhost": "127.0.0.1", HOST: LOGIN, **NODES}
    (directory / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names.items()))
    for command in PREPARATION.format(host=HOST, directory=directory).splitlines():
        subprocess.run(command.split(), check=True)
    make_bridge()
    if is_distributed:
        start_volume(directory)
    os.environ["SLURM_CONF"] = str(configure(directory))
    start_munge(directory)
    daemons = [start(directory, "slurmctld", "-D"), start_login(directory)]
    for name, address in NODES.items():
        (directory / f"spool-{name}").mkdir()
        mounts = make_cgroups(directory, name) if has_cgroups() else []
        if is_distributed:
            mounts += [f"umount --lazy {directory}/volume", " ".join(mount_words(directory))]
        script = NODE.format(name=name, address=address, directory=directory, mounts="\n".join(mounts))
        node = start(directory, *NAMESPACES, "sh", "-eu", "-c", script)
        join(node, name, address, link_shape(MEGABITS))
        daemons.append(node)
    while idle_nodes() < len(NODES):
        if any(daemon.poll() is not None for daemon in daemons):
            sys.exit("a daemon has ended")
        time.sleep(0.1)
    print("ready", flush=True)
    while True:  # Orphans are ours.
        os.wait()


def has_cgroups() -> bool:
    """Whether Slurm has cgroups here."""
    return all(os.access(CGROUPS / each, os.W_OK) for each in HIERARCHIES)


def make_cgroups(directory: Path, node: str) -> list[str]:
    """Make the cgroups of a node; return the commands that put them where its slurmd looks for them."""
    commands = []
    for hierarchy in HIERARCHIES:
        for own in (CGROUPS / hierarchy / directory.name, CGROUPS / hierarchy / directory.name / node):
            own.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (own / name).exists():
                    (own / name).write_text((own.parent / name).read_text())
        (place := directory / "cgroup" / hierarchy).mkdir(parents=True, exist_ok=True)
        commands.append(f"mount --bind {own} {place}")
    return commands


def configure(directory: Path) -> Path:
    nodes = "\n".join(
        f"NodeName={name} NodeAddr={address} CPUs={CPUS} RealMemory={MEMORY} State=UNKNOWN"
        for name, address in NODES.items()
    )
    path = directory / "slurm.conf"
    settings = {"host": HOST, "login": LOGIN, "nodes": nodes, "names": ",".join(NODES), "memory": MEMORY // CPUS}
    settings |= (
        {"tracking": "cgroup", "tasks": "cgroup"} if has_cgroups() else {"tracking": "linuxproc", "tasks": "none"}
    )
    path.write_text(CONFIGURATION.format(directory=directory, **settings))
    own = f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={directory}/cgroup\n"
    own += "ConstrainCores=yes\nConstrainRAMSpace=yes\n"
    (directory / "cgroup.conf").write_text(own if has_cgroups() else "IgnoreSystemd=yes\n")
    (directory / "state").mkdir()
    return path


def start_munge(directory: Path) -> None:
    (directory / "munge.key").touch(mode=0o600)
    (directory / "munge.key").write_bytes(os.urandom(1024))
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={directory}/munge.{name}" for option, name in names.items()]
    munged = start(directory, "munged", "--foreground", "--force", *options)
    while not (directory / "munge.socket").exists():
        if munged.poll() is not None:
            sys.exit("munged has ended")
        time.sleep(0.02)


def start_login(directory: Path) -> subprocess.Popen[bytes]:
    environment = f"SetEnv=SLURM_CONF={os.environ['SLURM_CONF']}"
    return start(directory, "/usr/sbin/sshd", "-D", "-e", "-f", str(SSHD_CONFIGURATION), "-o", environment)


def start(directory: Path, *command: str) -> subprocess.Popen[bytes]:
    with (directory / "daemons.log").open("a") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def idle_nodes() -> int:
    states = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, check=False).stdout
    return states.split().count("idle")


if __name__ == "__main__":
    main(Path(sys.argv[-1]), is_distributed="--distributed" in sys.argv[1:-1])
