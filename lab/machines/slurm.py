"""Process 1 of a laboratory with a real Slurm: munged, slurmctld, a slurmd for each node, and the sshd of a login node.

    python -S -E -m lab.machines.slurm [--distributed] DIRECTORY

The configuration is DIRECTORY/slurm.conf, the logs are beside it. One logs in as root at LOGIN, with the key
DIRECTORY/key. Each node has a file system of its own at DIRECTORY/local, and shares all others. With `--distributed`,
DIRECTORY/volume is a distributed file system. Each node is a client with caches of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from lab.machines.glusterfs import mount_words, start_volume
from lab.machines.hosts import SSHD_CONFIGURATION, generate_key

NODES = 4
CPUS = 2  # of each node; they need not exist
LOGIN = "10.77.0.1"
# Slurm resolves no name, not even an address, where there is only loopback: hence the bridge, which joins nothing.
# sshd refuses users with a locked account.
PREPARATION = """\
hostname laboratory
ip link set lo up
ip link add bridge type bridge
ip addr add {login}/24 dev bridge
ip link set bridge up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
cp {directory}/key.pub /run/sshd/authorized_keys
cp {directory}/host.key /run/sshd/host_key
cp /etc/shadow /run/shadow
sed -i s/^root:[^:]*/root:*/ /run/shadow
mount --bind /run/shadow /etc/shadow
mkdir -m 755 {directory}/local
"""
# slurmd and its jobs see the mounts, and nothing else does.
OWN = "mount -t tmpfs -o mode=755 {name} {directory}/local && mount -t tmpfs -o mode=1777 {name} /dev/shm"
OWN_CLIENT = "umount --lazy {directory}/volume && {mount}"
CONFIGURATION = """\
ClusterName=laboratory
SlurmctldHost=laboratory(127.0.0.1)
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
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=1000,bf_interval=1
KillWait=2
InactiveLimit=0
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def main(directory: Path, is_distributed: bool) -> None:
    for key in ("key", "host.key"):
        generate_key(directory / key)
    for command in PREPARATION.format(login=LOGIN, directory=directory).splitlines():
        subprocess.run(command.split(), check=True)
    if is_distributed:
        start_volume(directory, LOGIN)
    os.environ["SLURM_CONF"] = str(configure(directory))
    start_munge(directory)
    daemons = [start(directory, "slurmctld", "-D"), start_login(directory)]
    for number in range(1, NODES + 1):
        (directory / f"spool-n{number}").mkdir()
        own = [OWN.format(name=f"n{number}", directory=directory)]
        if is_distributed:
            own.append(OWN_CLIENT.format(directory=directory, mount=" ".join(mount_words(directory))))
        script = " && ".join([*own, f"exec slurmd -D -N n{number}"])
        daemons.append(start(directory, "unshare", "--mount", "sh", "-c", script))
    while idle_nodes() < NODES:
        if any(daemon.poll() is not None for daemon in daemons):
            sys.exit("a daemon has ended")
        time.sleep(0.1)
    print("ready", flush=True)
    while True:  # Orphans are ours.
        os.wait()


def configure(directory: Path) -> Path:
    nodes = "\n".join(
        f"NodeName=n{number} NodeHostname=laboratory NodeAddr=127.0.0.1 Port={17000 + number} CPUs={CPUS} "
        "RealMemory=4000 State=UNKNOWN"
        for number in range(1, NODES + 1)
    )
    path = directory / "slurm.conf"
    path.write_text(CONFIGURATION.format(directory=directory, nodes=nodes, count=NODES))
    (directory / "cgroup.conf").write_text("IgnoreSystemd=yes\n")
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
