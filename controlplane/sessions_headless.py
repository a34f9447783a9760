"""Recording one server straight into a session file, without a control plane and its database.

It only watches: nothing is ever sent to the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from controlplane.clock import SystemClock
from controlplane.engine import EngineClient
from controlplane.pilot import Pilot
from controlplane.settings import EngineSettings
from controlplane.version import VERSION
from store.errors import StoreError, StoreUnwritable
from store.observations import Sample
from store.policies import Stance
from store.records import EngineRecord, EngineSwitch
from store.session_writer import SessionWriter

HOLDER = "specdeck-record"
COMMIT_S = 2.0
"""What a kill may cost."""
SCRAPE_S = 30.0


async def record(
    url: str,
    path: Path,
    *,
    engine_id: str,
    seconds: float | None,
    poll_s: float = 0.5,
    max_bytes: int | None = None,
    api_key: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Watch a server until ``seconds`` are over or the task is cancelled; returns the ticks.

    Raises:
        StoreError: the file cannot be made, the disk is full or the bound is reached; what was
            recorded before is safe.
    """
    clock = SystemClock()
    settings = EngineSettings(id=engine_id, url=url, stance=Stance.SHADOW, poll_s=poll_s)
    client = EngineClient(
        engine_id,
        url,
        api_key=api_key,
        timeout_s=settings.timeout_s,
        clock=clock,
        clock_id=clock.clock_id,
        holder=HOLDER,
    )
    pilot = Pilot(settings, HOLDER)
    meta = {"engine_id": engine_id, "name": path.stem, "written_by": f"specdeck {VERSION}"}
    writer = SessionWriter.create(path, meta, max_bytes=max_bytes)
    seq, begun, scraped, committed = 0, clock.mono_ms(), -SCRAPE_S * 1000, clock.mono_ms()
    try:
        while seconds is None or clock.mono_ms() - begun < seconds * 1000:
            seq += 1
            due = clock.mono_ms() - scraped >= SCRAPE_S * 1000
            polled = await client.poll(seq, keep_raw=due)
            if due:
                scraped = clock.mono_ms()
            if polled.facts_changed is not None:
                made = pilot.adopt(polled.facts_changed, polled.costs, clock.utc_ms())
                engine = EngineRecord(
                    engine_id=engine_id,
                    url=url,
                    facts=polled.facts_changed,
                    added_utc_ms=clock.utc_ms(),
                )
                writer.add_record(engine)
                if made is not None:
                    writer.add_record(made)
            tick, _, _ = pilot.step(polled.observation)  # its command is never sent
            for given in pilot.intake.take():
                writer.add_input(given)
            writer.add_tick(tick)
            for decision in tick.decisions:
                writer.add_record(decision)
            for scrape in polled.scrapes:
                writer.add_scrape(scrape)
            if isinstance(polled.observation, Sample):
                for entry in polled.observation.switches:
                    writer.add_record(
                        EngineSwitch(
                            engine_id=engine_id,
                            boot_id=polled.observation.boot_id or "",
                            seen_utc_ms=clock.utc_ms(),
                            entry=entry,
                        )
                    )
            if clock.mono_ms() - committed >= COMMIT_S * 1000:
                writer.commit()
                committed = clock.mono_ms()
                progress(seq)
            period = round(poll_s * 1000)
            await asyncio.sleep((period - (clock.mono_ms() - begun) % period) / 1000)
    except StoreUnwritable:
        # It ends here, and not as it should: what was not committed is not in it.
        writer.close()
        raise
    finally:
        try:
            writer.finish()
        except StoreError:
            writer.close()
            raise
        finally:
            await client.aclose()
    return seq
