"""Laboratories as deployments of a StreamFlow file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lab.machines.laboratory import Laboratory


def ssh_deployment(laboratory: Laboratory, *addresses: str, user: str = "root") -> dict[str, Any]:
    """Where one logs in by SSH: hosts, or the login node of a Slurm."""
    return {
        "type": "ssh",
        "config": {
            "nodes": list(addresses),
            "username": user,
            "sshKey": str(laboratory.directory / "key"),
            "checkHostKey": False,
            "maxConcurrentSessions": 50,
        },
    }


def slurm_deployment(workdir: Path) -> dict[str, Any]:
    """A Slurm; its commands need :func:`slurm_environment`."""
    return {"type": "slurm", "config": {"maxConcurrentJobs": 16, "pollingInterval": 1}, "workdir": str(workdir)}


def allocation_deployment(workdir: Path) -> dict[str, Any]:
    """The nodes of an allocation of a Slurm."""
    return {"type": "sfio.allocation", "config": {}, "workdir": str(workdir)}


def slurm_environment(laboratory: Laboratory) -> dict[str, str]:
    """The environment in which commands of Slurm find their daemons."""
    return {"SLURM_CONF": str(laboratory.directory / "slurm.conf")}


def docker_environment(laboratory: Laboratory) -> dict[str, str]:
    """Where `docker` finds the daemon of a laboratory with containers."""
    return {"DOCKER_HOST": f"unix://{laboratory.directory}/docker.sock"}


def podman_environment(laboratory: Laboratory) -> dict[str, str]:
    """Where `docker` is podman."""
    return _found_first(laboratory, "podman")


def singularity_environment(laboratory: Laboratory) -> dict[str, str]:
    """Where `singularity` is our stand-in."""
    return _found_first(laboratory, "singularity")


def compose_environment(laboratory: Laboratory) -> dict[str, str]:
    """Where `docker-compose` is our stand-in, and docker a real one."""
    return docker_environment(laboratory) | _found_first(laboratory, "compose")


def kubernetes_config(laboratory: Laboratory, namespace: str) -> dict[str, Any]:
    """The configuration with which StreamFlow finds the stand-in for Kubernetes."""
    return {"kubeconfig": str(laboratory.directory / "kubeconfig"), "namespace": namespace}


def _found_first(laboratory: Laboratory, engine: str) -> dict[str, str]:
    return {"PATH": f"{laboratory.directory / engine}:{os.environ['PATH']}"}
