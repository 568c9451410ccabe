"""Scripts that run in the shell of a node, as many at once as wait for it."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from streamflow.core.exception import WorkflowExecutionException

from .shared_files import Said

_MOST = 32


class _Script(Struct):
    text: str
    answer: asyncio.Future[Said]


class Batches:
    """Runs scripts on nodes. Those that wait for the shell of a node go there together, in one round trip.

    :param run: runs a script in the shell of a node, and returns its output and exit code
    """

    def __init__(self, run: Callable[[str, str], Awaitable[Said]]) -> None:
        self._run = run
        # By node, if a task runs its scripts.
        self._waiting: dict[str, list[_Script]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, node: str, text: str) -> Said:
        """Run a script. It has no input, and changes nothing in the shell.

        :raises WorkflowExecutionException: if the shell ends
        """
        script = _Script(text, asyncio.get_running_loop().create_future())
        if (waiting := self._waiting.get(node)) is not None:
            waiting.append(script)
        else:
            self._waiting[node] = [script]
            task = asyncio.create_task(self._run_all(node))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await script.answer

    async def _run_all(self, node: str) -> None:
        # Tasks that are ready now may ask, too.
        await asyncio.sleep(0)
        waiting = self._waiting[node]
        try:
            while waiting:
                batch = [script for script in waiting[:_MOST] if not script.answer.done()]
                del waiting[:_MOST]
                if batch:
                    await self._run_batch(node, batch)
        finally:
            del self._waiting[node]
            for script in waiting:
                script.answer.cancel()

    async def _run_batch(self, node: str, batch: Sequence[_Script]) -> None:
        mark = secrets.token_hex(8)
        parts = [f"({script.text}\n); printf '\\n%s %s\\n' {mark} $?" for script in batch]
        try:
            printed, _ = await self._run(node, "\n".join(parts))
            answers = answers_of(printed, mark)
            if len(answers) != len(batch):
                raise WorkflowExecutionException(f"a shell of {node} has answered something else: {printed[:200]}")
            for script, answer in zip(batch, answers, strict=True):
                if not script.answer.done():
                    script.answer.set_result(answer)
        except WorkflowExecutionException as error:
            for script in batch:
                if not script.answer.done():
                    script.answer.set_exception(WorkflowExecutionException(str(error)))
        finally:
            for script in batch:
                script.answer.cancel()


def answers_of(printed: str, mark: str) -> list[Said]:
    """Return the output and the exit code of each script of a batch.

    :param mark: is printed after each script, with its exit code
    """
    *parts, _ = re.split(rf"(?:^|\n){mark} (\d+)(?:\n|$)", printed)
    return [(said.strip(), int(code)) for said, code in zip(parts[::2], parts[1::2], strict=True)]
