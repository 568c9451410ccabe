"""`streamflow-io watch --web`: shows a run in a browser, for the user of this machine alone."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from streamflow_io.report.following import FollowedRun
from streamflow_io.report.live_view import page_facts

HOST = "127.0.0.1"
_EACH = 0.5
# Silent connections are kept alive, and closed ones are found, by a line after this many seconds.
_SILENCE = 15.0
_PAGE = "watch_page.html"


class Shown(Struct):
    """The state that the page shows.

    :ivar facts: the facts of the run, as JSON
    :ivar number: how often the facts have changed
    """

    facts: str = ""
    number: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def set(self, facts: str) -> None:
        if facts != self.facts:
            async with self.changed:
                self.facts, self.number = facts, self.number + 1
                self.changed.notify_all()

    async def next(self, number: int) -> None:
        """Wait until the facts have another number."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.number != number)


async def serve(
    look: Callable[[], FollowedRun | None], port: int, nobody: dict[str, Any], ready: Callable[[str], None]
) -> None:
    """Serve the page until the task is cancelled.

    The address has a random word in it. Only this machine can reach the page, and no page of another site can show it.
    Where there is no run, the page shows the facts `nobody`.

    :param look: returns the run to show, with all records that were written. Called again and again in a thread
    :param port: 0: any free port
    :param ready: called with the address
    :raises OSError: if the port is not free
    """
    shown, word = Shown(json.dumps(nobody), 1), secrets.token_urlsafe(24)
    application = web.Application(middlewares=[_guard(word)])
    application.add_routes([web.get("/{word}/", _page), web.get("/{word}/events", _events(shown))])
    # aiohttp logs invalid requests, by which any process on this machine could write into the terminal.
    silent = logging.Logger(__name__, logging.CRITICAL + 1)
    asyncio.get_running_loop().set_exception_handler(_tell_of_own_errors)
    runner = web.AppRunner(application, access_log=None, logger=silent, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        ready(f"http://{HOST}:{runner.addresses[0][1]}/{word}/")
        while True:
            following = await asyncio.to_thread(look)
            if following is not None:
                await shown.set(json.dumps(page_facts(following.view(time.time()))))
            await asyncio.sleep(_EACH)
    finally:
        await runner.cleanup()


def _tell_of_own_errors(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error, unless the bytes of a connection have caused the error."""
    if "protocol" not in context:
        loop.default_exception_handler(context)


def _guard(word: str) -> Any:
    """Return a middleware that refuses requests without the word, or with another host name (DNS rebinding)."""

    @web.middleware
    async def guard(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        name = request.host.rpartition(":")[0]
        told = request.match_info.get("word", "")
        if name not in (HOST, "localhost") or not hmac.compare_digest(told.encode(), word.encode()):
            raise web.HTTPNotFound
        response: web.StreamResponse = await handler(request)
        return response

    return guard


async def _page(_: web.Request) -> web.Response:
    nonce = secrets.token_urlsafe(16)
    text = files(__package__).joinpath(_PAGE).read_text("utf-8").replace("NONCE", nonce)
    policy = f"default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"
    headers = {
        "Content-Security-Policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


def _events(shown: Shown) -> Callable[[web.Request], Any]:
    async def events(request: web.Request) -> web.StreamResponse:
        """Send the state as server-sent events, whenever it has changed."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        number = 0
        with contextlib.suppress(ConnectionError):
            while True:
                try:
                    await asyncio.wait_for(shown.next(number), _SILENCE)
                except asyncio.TimeoutError:
                    await response.write(b": still here\n\n")
                    continue
                number = shown.number
                await response.write(f"data: {shown.facts}\n\n".encode())
        return response

    return events
