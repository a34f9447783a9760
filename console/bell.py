"""When the bell is due: once per alarm, and once for an override that ends within half a minute."""

from __future__ import annotations

from console.scene import Scene, override_left_s
from controlplane.messages import Fleet

EXPIRY_BELL_S = 30.0


class Bell:
    """Knows what was rung for already."""

    def __init__(self) -> None:
        self._rung: set[str] = set()
        self._fleet_rung: set[str] = set()
        self._fleet_seen = False

    def another_engine(self) -> None:
        """What the engine before was rung for says nothing of the one shown now."""
        self._rung.clear()

    def due(self, scene: Scene) -> bool:
        """Whether the shown engine has something new."""
        tick, left = scene.board.tick, override_left_s(scene)
        if tick is None:
            return False
        due = {f"alarm {alarm.code} {alarm.since_utc_ms}" for alarm in tick.alarms}
        if tick.override is not None and left is not None and left < EXPIRY_BELL_S:
            due.add(f"override {tick.override.id} {tick.override.expires_utc_ms}")
        new = due - self._rung
        self._rung = due
        return bool(new)

    def due_elsewhere(self, fleet: Fleet, shown: str) -> bool:
        """Whether one of the engines that are not shown has something new."""
        due: set[str] = set()
        for row in fleet.rows:
            if row.engine_id == shown:
                continue
            due |= {f"{row.engine_id} {one.code} {one.since_utc_ms}" for one in row.alarms}
            left = row.override_left_s
            if left is not None and left < EXPIRY_BELL_S:
                due.add(f"{row.engine_id} override ends")
        # What stood already when the console came is on the screen, it needs no bell.
        new = due - self._fleet_rung if self._fleet_seen else set()
        self._fleet_seen = True
        self._fleet_rung = due
        return bool(new)
