"""Headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--window-size=1000,700",
    "--remote-debugging-port=0",
)


def chromium() -> str | None:
    """The browser's path, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self.said: list[str] = []
        """What the page's console and its refused requests said."""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; events that come meanwhile are kept in ``said``."""
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        while True:
            told = await self._socket.receive_json(timeout=20)
            if told.get("id") == self._last:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            if told.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.said.append(str(told["params"]))

    async def open(self, url: str) -> None:
        """Go to ``url``."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        """What ``script`` evaluates to."""
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return told["result"].get("value")

    async def until(self, script: str, seconds: float = 20.0) -> None:
        """Wait until ``script`` is true."""
        end = time.monotonic() + seconds
        while not await self.value(script):
            text = await self.value("document.body ? document.body.innerText : ''")
            assert time.monotonic() < end, f"not within {seconds} s: {script}; {text}; {self.said}"
            await asyncio.sleep(0.1)

    async def type(self, text: str) -> None:
        """Type characters."""
        for char in text:
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=char, key=char)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=char)

    async def key(self, name: str, code: int) -> None:
        """Press a key that writes nothing."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=code,
            )

    async def picture(self) -> bytes:
        """The page as PNG."""
        told = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Page]:
    """A new browser with a profile of its own and one page."""
    path = chromium()
    assert path is not None
    process = await asyncio.create_subprocess_exec(
        path,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession(trust_env=False) as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = await answer.json()
            target = next(one for one in pages if one["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                yield page
    finally:
        process.kill()
        await process.wait()


async def _port(file: Path) -> int:
    end = time.monotonic() + 30
    while True:
        try:
            return int((await asyncio.to_thread(file.read_text)).splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            assert time.monotonic() < end, "the browser does not start"
            await asyncio.sleep(0.1)
