"""Random workflows whose steps run on SSH hosts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from lab.machines.deployments import ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory
from lab.sites import Site

from .blueprint import Blueprint, Step
from .containers import is_local, renamed
from .trial import Trial, run_trial

#: A run of some ten seconds that takes longer hangs.
SECONDS: Final = 180.0
# The deployment of both, and one for each.
_BOTH, _FIRST, _SECOND = "hosts", "first", "second"


@dataclass
class Hosts(Site):
    """A bench whose steps run on hosts, with working directories of its own there.

    :ivar scratch: all of them
    """

    scratch: str = field(kw_only=True)

    def leftovers(self) -> list[str]:
        return [*super().leftovers(), *self._on_hosts()]

    def _on_hosts(self) -> list[str]:
        """Also what a run has elsewhere names one of its directories, or is in one."""
        # The search does not find itself.
        named = f"{self.scratch[:-1]}[{self.scratch[-1]}]"
        look = (
            f"find /scratch -path '{named}/*' \\( -name 'streamflow-io-*' -o -type p -o -type s \\); "
            f"for p in /proc/[0-9]*; do tr '\\0' ' ' 2>&- < $p/cmdline; echo; done | grep -a -e '{named}'; true"
        )
        return [
            f"{address}: {line}" for address in ADDRESSES for line in self._call(address, look).splitlines() if line
        ]

    def remove(self) -> None:
        """Remove its directories on the hosts."""
        for address in ADDRESSES:
            self._call(address, f"rm -rf {self.scratch}")

    def _call(self, address: str, command: str) -> str:
        return self.laboratory.run(*self.laboratory.login(address, command))


def spread(blueprint: Blueprint) -> Blueprint:
    """The same workflow, as far as plain StreamFlow can copy its files to hosts."""
    given = {name: replace(value, value=renamed(value.value)) for name, value in blueprint.given.items()}
    return replace(blueprint, given=given, beside=False)


def places(blueprint: Blueprint, seed: int, number: int) -> dict[str, str]:
    """The deployment of each step that does not run on the driver's node; follows from the seed, number, and name."""
    share = Random(f"{seed}:{number}:hosts").choice((0.5, 0.8, 1.0))
    found = {step.name: _place(Random(f"{seed}:{number}:{step.name}:hosts"), step, share) for step in blueprint.steps}
    return {f"/{name}": place for name, place in found.items() if place}


def _place(random: Random, step: Step, share: float) -> str:
    if step.wrap == "expression" or is_local(step) or random.random() > share:
        return ""
    return random.choice((_BOTH, _FIRST, _FIRST, _SECOND))


def run_on_hosts(
    laboratory: Laboratory, seed: int, number: int, directory: Path, blueprint: Blueprint, program: str = Hosts.program
) -> Trial:
    """Run a blueprint both ways, with the steps of both on the same hosts.

    :param program: what runs it, by its name in `lab/forked.py`
    """
    made: list[Hosts] = []

    def make(place: Path) -> Hosts:
        scratch = f"/scratch/{directory.parent.name}-{directory.name}-{place.name}"
        hosts = {_BOTH: ADDRESSES, _FIRST: ADDRESSES[:1], _SECOND: ADDRESSES[1:]}
        deployments = {
            name: {**ssh_deployment(laboratory, *addresses), "workdir": scratch} for name, addresses in hosts.items()
        }
        place.mkdir(parents=True, exist_ok=True)
        bench = Hosts(
            place,
            program=program,
            namespaces=(laboratory.network,),
            laboratory=laboratory,
            name=_BOTH,
            deployment=deployments[_BOTH],
            others={name: deployment for name, deployment in deployments.items() if name != _BOTH},
            shared=place,
            steps=(),
            elsewhere=places(blueprint, seed, number),
            scratch=scratch,
        )
        made.append(bench)
        return bench

    try:
        return run_trial(directory, blueprint, SECONDS, make)
    finally:
        for bench in made:
            bench.remove()
