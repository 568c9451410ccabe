"""Headless Chromium, by its debugging protocol: what a page shows, as a reader sees it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

CHROMIUM = shutil.which("chromium")
_LISTENS = re.compile(r"DevTools listening on (ws://\S+)")


class Page:
    """A page in a browser."""

    def __init__(self, socket: ClientWebSocketResponse[bool], session: str) -> None:
        self._socket = socket
        self._session = session
        self._number = 100

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something; what else it tells meanwhile is lost."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters, "sessionId": self._session}
        return await ask(self._socket, asked)

    async def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.command("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self) -> str:
        """The text that can be read on the page."""
        return str(await self.evaluate("document.body?.innerText ?? ''"))

    async def wait_for(self, words: str, seconds: float = 30) -> str:
        """Wait until words are to be read on the page."""
        until = time.monotonic() + seconds
        while words not in (text := await self.text()):
            assert time.monotonic() < until, text
            await asyncio.sleep(0.1)
        return text

    async def screenshot(self, file: Path, size: tuple[int, int] | None = None) -> None:
        """A PNG of all of the page, or of the first pixels of it."""
        part = {} if size is None else {"clip": {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}}
        answer = await self.command("Page.captureScreenshot", captureBeyondViewport=True, **part)
        file.write_bytes(base64.b64decode(answer["data"]))


async def ask(socket: ClientWebSocketResponse[bool], asked: dict[str, Any]) -> dict[str, Any]:
    await socket.send_str(json.dumps(asked))
    while True:
        answer = json.loads(await socket.receive_str(timeout=30))
        if answer.get("id") == asked["id"]:
            assert "error" not in answer, answer
            return dict(answer["result"])


@contextlib.asynccontextmanager
async def opened(address: str, width: int = 900, height: int = 900) -> AsyncIterator[Page]:
    """A page in a browser of its own, which is gone afterwards."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = await asyncio.create_subprocess_exec(
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert browser.stderr is not None
            while (found := _LISTENS.search((await browser.stderr.readline()).decode())) is None:
                assert browser.returncode is None
            async with ClientSession() as session, session.ws_connect(found[1], max_msg_size=0) as socket:
                created = await ask(
                    socket, {"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}
                )
                target = {"targetId": created["targetId"], "flatten": True}
                attached = await ask(socket, {"id": 2, "method": "Target.attachToTarget", "params": target})
                page = Page(socket, attached["sessionId"])
                await page.command("Page.navigate", url=address)
                yield page
        finally:
            with contextlib.suppress(ProcessLookupError):
                browser.kill()
            await browser.wait()
