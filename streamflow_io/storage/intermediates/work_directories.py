"""Finds out which nodes have the same work directory. No configuration is believed: the nodes are asked."""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.log_handler import logger

from streamflow_io._streamflow import own_hosts

from .directories import ask, present

#: The name of a node, and the path of a work directory there.
WorkDirectory = tuple[str, str]

# StreamFlow makes the work directory in the same way for the first job.
_MAKE = 'mkdir -p "$1" && mkdir "$1/$2" && echo made'
_REMOVE = 'rmdir "$1/$2"'
# Seconds for each question, and to clean up: the end of a run may wait for that.
_PATIENCE, _REMOVING = 60.0, 5.0


class SharedWorkDirectories:
    """Says which nodes share a work directory: one node sees what another one makes in the directory."""

    def __init__(self, context: StreamFlowContext) -> None:
        self._context = context

    async def shared(
        self, new: Mapping[WorkDirectory, ExecutionLocation], known: Mapping[WorkDirectory, ExecutionLocation]
    ) -> set[tuple[str, str]]:
        """Return pairs of nodes that share a work directory. Raises nothing.

        In doubt, directories are shared: a new one that cannot be written shares with all others, a known one that
        does not answer any more with all new ones. A host that is lost writes no more files, and is left out then.

        :param new: directories with their locations
        :param known: further ones, whose pairs are known
        """
        every = {**known, **new}
        names = {f".sfio-{os.urandom(8).hex()}": place for place in new}
        try:
            made = await asyncio.gather(*(self._ask(new[at], _MAKE, at[1], name) for name, at in names.items()))
            seen = await asyncio.gather(*(self._look(every[at], at[1], [*names]) for at in every))
        finally:
            gone = (self._ask(new[at], _REMOVE, at[1], name, seconds=_REMOVING) for name, at in names.items())
            await asyncio.gather(*gone)
        unclear = {at for (name, at), done in zip(names.items(), made, strict=True) if not done}
        unclear.update(at for at, found in zip(every, seen, strict=True) if found is None)
        unclear = {at for at in unclear if not self._is_lost(every[at])}
        for node, path in unclear:
            logger.info(f"Nothing can be found out about {path} on {node}: in doubt it counts as shared")
        pairs = {(names[name][0], at[0]) for at, found in zip(every, seen, strict=True) for name in found or ()}
        return pairs | {(at[0], other[0]) for at in unclear for other in (every if at in new else new)}

    def _is_lost(self, location: ExecutionLocation) -> bool:
        hosts = own_hosts(self._context.deployment_manager.get_connector(location.deployment))
        return hosts is not None and hosts.is_lost(location.name)

    async def _look(self, location: ExecutionLocation, path: str, names: list[str]) -> list[str] | None:
        """The names that a node sees in a directory; None: the node does not say."""
        paths = [path, *(posixpath.join(path, name) for name in names)]
        with suppress(Exception):  # Connectors raise what the libraries behind them do.
            found = await asyncio.wait_for(present(self._context, location, paths), _PATIENCE)
            if path in found:
                return [posixpath.basename(each) for each in found if each != path]
        return None

    async def _ask(
        self, location: ExecutionLocation, script: str, *words: str, seconds: float = _PATIENCE
    ) -> list[str]:
        """The lines that a script prints; none where the location cannot be asked."""
        with suppress(Exception):  # Connectors raise what the libraries behind them do.
            said = await asyncio.wait_for(ask(self._context, location, script, words), seconds)
            return said.decode().splitlines()
        return []
