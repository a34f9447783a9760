"""The console in a browser: the login, what it keeps out, and a real browser driven to act."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.client import ControlPlaneClient
from engine_patch.contract_words import Mode
from tests.browser import browser, chromium
from tests.controlplane_rig import ENGINE, Running, control_plane, embedded_engine, settings_of

TOKEN = "an-operating-token-of-the-tests-01"
EYES = "a-reading-token-of-the-tests-0002"
ROOT = Path(__file__).resolve().parent.parent


@asynccontextmanager
async def served(url: str, *arguments: str, **environment: str) -> AsyncIterator[str]:
    """``specdeck web`` in a process of its own."""
    code = "import sys; from console.web_cli import run; sys.exit(run(sys.argv[1:]))"
    kept = {key: value for key, value in os.environ.items() if "SPECDECK" not in key}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        url,
        "--port",
        "0",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=kept | environment,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        yield ready["url"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def locked(tmp_path: Path, engine_url: str) -> AsyncIterator[Running]:
    """A control plane with an operating and a reading token."""
    tokens = [
        {"name": "ops", "role": "operate", "token": TOKEN},
        {"name": "eyes", "role": "read", "token": EYES},
    ]
    async with control_plane(settings_of(tmp_path, engine_url, tokens=tokens)) as running:
        yield running


def http(url: str) -> httpx.AsyncClient:
    """A browser without a screen."""
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=10)


async def log_in(client: httpx.AsyncClient, name: str, token: str) -> httpx.Response:
    """Fill in the form."""
    return await client.post("/login", data={"name": name, "token": token})


async def test_nothing_but_the_login_is_open_and_its_cookie_is_no_scripts(tmp_path: Path) -> None:
    async with (
        locked(tmp_path, "http://127.0.0.1:9") as running,
        served(running.url) as url,
        http(url) as client,
    ):
        assert (await client.get("/")).headers["location"] == "/login"
        for path in ("/ws", "/download/x", "/other"):
            assert (await client.get(path)).status_code == 401
        page = await client.get("/login")
        assert "Log in with your token of the control plane." in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        wrong = await log_in(client, "alice", "wrong-token-wrong-token")
        assert wrong.status_code == 403
        assert "this token is not known" in wrong.text
        assert "wrong-token" not in wrong.text
        nameless = await log_in(client, "  ", TOKEN)
        assert "write your name" in nameless.text
        good = await log_in(client, "alice", TOKEN)
        assert good.headers["location"] == "/"
        cookie = good.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        index = await client.get("/")
        assert index.status_code == 200
        assert TOKEN not in index.text
        assert "googleapis" not in index.text
        # Logged in, yet a websocket that another site's page opens is refused.
        assert (await client.get("/ws", headers={"Origin": "http://evil"})).status_code == 403
        assert (await client.get("/ws")).status_code == 403
        assert (await client.get("/", headers={"Host": "evil"})).status_code == 421
        await client.post("/logout")
        assert (await client.get("/")).headers["location"] == "/login"


async def test_a_name_that_would_be_markup_is_text(tmp_path: Path) -> None:
    async with (
        locked(tmp_path, "http://127.0.0.1:9") as running,
        served(running.url) as url,
        http(url) as client,
    ):
        page = await log_in(client, '"><script>alert(1)</script>', "wrong-token-wrong-token")
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;" in page.text


async def test_wrong_tokens_are_slow_one_after_another(tmp_path: Path) -> None:
    async with (
        locked(tmp_path, "http://127.0.0.1:9") as running,
        served(running.url) as url,
        http(url) as client,
    ):
        begun = time.monotonic()
        await asyncio.gather(*(log_in(client, "x", f"wrong-token-number-{i}") for i in range(3)))
        assert time.monotonic() - begun > 2.5


async def test_where_the_control_plane_wants_no_token_the_web_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "door").write_text("the-door-token-of-the-tests")
    async with (
        control_plane(settings_of(tmp_path, "http://127.0.0.1:9")) as running,
        served(running.url, "--login-token-file", str(tmp_path / "door")) as url,
        http(url) as client,
    ):
        assert (await log_in(client, "alice", "")).status_code == 403
        assert (await log_in(client, "alice", "another-token-entirely")).status_code == 403
        assert (await log_in(client, "alice", "the-door-token-of-the-tests")).status_code == 303


@pytest.mark.browser
async def test_a_browser_opens_the_console_and_acts_under_the_visitors_name(
    tmp_path: Path,
) -> None:
    if chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine:
        async with (
            locked(tmp_path, engine.url) as running,
            served(running.url) as url,
            browser(tmp_path / "profile") as page,
            ControlPlaneClient(running.url, TOKEN) as client,
        ):
            await page.open(url)
            await page.until("location.pathname === '/login'")
            await page.value("document.querySelector('[name=name]').value = 'alice'")
            await page.value(f"document.querySelector('[name=token]').value = '{TOKEN}'")
            await page.value("document.querySelector('button').click()")
            await page.until("document.body.classList.contains('-first-byte')")
            await asyncio.sleep(2.0)
            await page.value("document.querySelector('textarea').focus()")
            await page.type("m")
            await asyncio.sleep(2.0)
            # Cancel has the focus; reason is two fields before it, the button that acts is next.
            for _ in range(2):
                await page.key("ArrowUp", 38)
            await asyncio.sleep(1.0)
            await page.type("from a browser")
            for _ in range(3):
                await page.key("ArrowDown", 40)
            await asyncio.sleep(1.0)
            (tmp_path / "page.png").write_bytes(await page.picture())
            await page.key("Enter", 13)
            held = await until_override(client)
            assert held["mode"] == Mode.OFF
            assert held["author"] == "alice (token ops)"
            assert held["reason"] == "from a browser"
            assert not [text for text in page.said if "Content Security Policy" in text], page.said
            await page.type("q")
            await page.until("document.body.classList.contains('-closed')")


async def until_override(client: ControlPlaneClient, seconds: float = 60.0) -> dict[str, Any]:
    """The override in force, once there is one."""
    end = time.monotonic() + seconds
    while (held := await client.override(ENGINE)) is None:
        assert time.monotonic() < end, "no override was set"
        await asyncio.sleep(0.1)
    return held.model_dump()
