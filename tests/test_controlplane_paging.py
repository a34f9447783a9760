"""Lists in pages: following the ``Link`` from the first page finds every row once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.messages import StanceRequest
from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from store.policies import Stance
from store.records import (
    AuditEntry,
    Decision,
    EngineSwitch,
    Marker,
    Outcome,
    Reason,
    SessionRecord,
)
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

ROWS = 5
PATHS = {
    "ticks": f"/v1/engines/{ENGINE}/ticks",
    "decisions": f"/v1/engines/{ENGINE}/decisions",
    "switches": f"/v1/engines/{ENGINE}/switches",
    "markers": f"/v1/engines/{ENGINE}/markers",
    "policies": f"/v1/engines/{ENGINE}/policies",
    "audit": "/v1/audit",
    "sessions": "/v1/sessions",
    "session ticks": "/v1/sessions/1/ticks",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


def rows() -> list[Any]:
    """Rows of every kind, beside those that the engine itself brings."""
    made: list[Any] = []
    for number in range(1, ROWS + 1):
        entry = JournalEntry(
            seq=number,
            from_tier="off",
            to_tier="s3k1d4",
            reason=SwitchReason.COMMAND,
            step=1,
            batch=1,
        )
        made += [
            EngineSwitch(engine_id=ENGINE, boot_id="old", seen_utc_ms=1, entry=entry),
            # Markers are shown in the order of observations and paged in that of their ids.
            Marker(
                engine_id=ENGINE, at_utc_ms=1, seq=ROWS - number, kind="k", author="a", text="t"
            ),
            Decision(
                engine_id=ENGINE,
                seq=10**6 + number,
                at_utc_ms=1,
                from_tier="off",
                to_tier="s3k1d4",
                reason=Reason.FIXED,
                text="",
                outcome=Outcome.SHADOW,
            ),
            AuditEntry(at_utc_ms=1, actor="a", action="b", target="c"),
            SessionRecord(engine_id=ENGINE, name=f"s{number}", started_utc_ms=1, last_seq=4),
        ]
    return made


async def walk(http: httpx.AsyncClient, path: str, limit: int) -> list[list[Any]]:
    """The pages of a list, following its links."""
    pages: list[list[Any]] = []
    at: str | None = f"{path}?limit={limit}"
    while at is not None:
        answer = await http.get(at)
        assert answer.status_code == 200, answer.text
        pages.append(answer.json())
        assert len(pages[-1]) <= limit
        found = answer.links.get("next")
        assert (found is not None) == (len(pages[-1]) == limit)
        at = None if found is None else found["url"]
    return pages


async def test_every_list_is_walked_by_its_links(engine: EmbeddedEngine, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, engine.url, engine={"poll_s": 60})
    async with control_plane(settings) as running, running.client() as client:
        await ticked(running)
        for stance in (Stance.SHADOW, Stance.ACTIVE):
            await client.set_stance(ENGINE, StanceRequest(stance=stance, author="alice"))
        await asyncio.wrap_future(running.service.store.write(rows()))
        runner = running.service.runner(ENGINE)
        while runner.counts.polls < ROWS:
            seen = runner.counts.polls
            runner.wake()
            await until(lambda seen=seen: runner.counts.polls > seen, 30.0)  # type: ignore[misc]
        async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
            for name, path in PATHS.items():
                whole = (await http.get(f"{path}?limit=10000")).json()
                assert len(whole) >= 3, name
                for limit in (1, 2):
                    pages = await walk(http, path, limit)
                    flat = [one for page in pages for one in page]
                    found = [repr(one) for one in flat]
                    assert len(set(found)) == len(found), name
                    # The engine may have been polled once more meanwhile.
                    assert set(map(repr, whole)) <= set(found), name
            again = await http.get(f"{PATHS['ticks']}?limit=2&after_id=0")
            assert "after_id=" in again.links["next"]["url"]


async def ticked(running: Running) -> None:
    await until(lambda: running.service.runner(ENGINE).pilot.policy is not None, 30.0)
