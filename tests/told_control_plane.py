"""The control plane's own API over told ticks: many engines without the work of polling them.

    python -m tests.told_control_plane --engines 200 --poll 0.5

Prints one JSON line when it is ready.  Every route is the real one; only the loops around the
engines are replaced by a clock that tells constructed ticks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from controlplane.api import create_app
from controlplane.hub import Event
from controlplane.runner import Runner
from controlplane.security import Tokens
from controlplane.server import bind, make_server
from controlplane.service import Service
from controlplane.settings_load import load
from store.db import Store
from store.records import Tick
from tests.console_story import facts, policy, sample, tick, tier_at


class ToldService(Service):
    """Tells each engine's next tick at its poll period."""

    async def start(self) -> None:
        """Tell in place of polling."""
        for place, runner in enumerate(self.runners.values()):
            known = facts()
            runner.known.record = runner.known.record.model_copy(
                update={"facts": known, "group": f"group {place % 8}"}
            )
            runner.pilot.facts = known
            runner.pilot.policy = policy().model_copy(update={"engine_id": runner.engine_id})
        self._tasks["told"] = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        seq = row = 0
        runners = list(self.runners.values())
        period = runners[0].settings.poll_s
        begun = time.monotonic()
        while True:
            seq += 1
            for place, runner in enumerate(runners):
                row += 1
                self._told(runner, self._tick(runner.engine_id, seq, row, place))
                if place % 20 == 0:
                    # Answers go out between, as between real polls.
                    await asyncio.sleep(0)
            await asyncio.sleep(max(begun + seq * period - time.monotonic(), 0.001))

    def _tick(self, engine_id: str, seq: int, row: int, place: int) -> Tick:
        second = (seq / 2 + place) % 110
        tier = tier_at(second)
        seen = sample(second, tier).model_copy(
            update={
                "engine_id": engine_id,
                "seq": seq,
                "at_utc_ms": self.clock.utc_ms(),
                "at_mono_ms": self.clock.mono_ms(),
                "clock_id": self.clock.clock_id,
            }
        )
        return tick(seen, tier).model_copy(update={"id": row, "engine_id": engine_id})

    def _told(self, runner: Runner, told: Tick) -> None:
        runner._tick = told
        if self.hub.clients:
            self.hub.publish(Event(told.id, runner.engine_id, told.model_dump_json()))


async def serve(engines: int, poll_s: float, folder: Path) -> None:
    """Serve for ever."""
    given = {
        "listen": {"port": 0},
        "database": str(folder / "deck.sqlite3"),
        "engines": [
            {"id": f"h200-{place:03d}", "url": f"http://127.0.0.1:9/{place}", "poll_s": poll_s}
            for place in range(engines)
        ],
    }
    settings = load(None, given)[0]
    sock = bind("127.0.0.1", 0)
    store = await asyncio.to_thread(Store.open, settings.database_location)
    service = ToldService(settings, store)
    app = create_app(service, settings, Tokens(()))
    port = sock.getsockname()[1]

    def ready() -> None:
        print(json.dumps({"url": f"http://127.0.0.1:{port}"}), flush=True)

    await make_server(app, service.hub, on_ready=ready).serve(sockets=[sock])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", type=int, default=200)
    parser.add_argument("--poll", type=float, default=0.5)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(words.engines, words.poll, Path(folder)))


if __name__ == "__main__":
    main()
