"""The few questions the demo asks its own control plane and engine, with the standard library."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

TIMEOUT_S = 10.0
_POLL_S = 0.03
_PAGE = 1000


class AskError(Exception):
    """A question was not answered as expected."""


def ask(url: str, path: str) -> Any:
    """The JSON answer of ``GET url + path``.

    Raises:
        AskError: nobody answers, or not with JSON.
    """
    parts = urllib.parse.urlsplit(url)
    # Not urllib.request: a proxy from the environment must not come between parts of the demo.
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise AskError(f"{path}: HTTP {answer.status}: {body[:200].decode(errors='replace')}")
        return json.loads(body)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise AskError(f"{path}: {error}") from error
    finally:
        connection.close()


def wait_steering(url: str, engine_id: str, timeout_s: float, alive: Callable[[], None]) -> None:
    """Wait until the control plane sees the engine's tiers confirmed and has a policy for it.

    Args:
        alive: called again and again; raises when waiting makes no sense any more.

    Raises:
        AskError: not within ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    seen = "nothing"
    while time.monotonic() < deadline:
        alive()
        try:
            status = ask(url, f"/v1/engines/{engine_id}")
            tick = status["tick"] or {}
            if tick.get("confirmed") is not None and status["policy"] is not None:
                return
            seen = tick.get("verdict", {}).get("text", "no tick yet")
        except AskError as error:
            seen = str(error)
        time.sleep(_POLL_S)
    raise AskError(f"the control plane did not see the engine within {timeout_s:g} s: {seen}")


def last_tick(url: str, engine_id: str) -> int:
    """Row id of the newest tick."""
    ticks = ask(url, f"/v1/engines/{engine_id}/ticks?limit=1")
    return int(ticks[-1]["id"]) if ticks else 0


def gap_times(url: str, engine_id: str, after_id: int) -> list[int]:
    """Wall times (UTC ms) of the failed polls after tick ``after_id``."""
    found: list[int] = []
    while True:
        page = ask(url, f"/v1/engines/{engine_id}/ticks?after_id={after_id}&limit={_PAGE}")
        seen = [tick["observation"] for tick in page]
        found += [int(one["at_utc_ms"]) for one in seen if one["kind"] == "gap"]
        if len(page) < _PAGE:
            return found
        after_id = int(page[-1]["id"])
