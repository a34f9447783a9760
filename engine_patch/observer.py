"""The ranks of this host as the HTTP process sees them: read from shared memory, never waiting."""

from __future__ import annotations

import time
from pathlib import Path

from engine_patch import shm
from engine_patch.contract import JournalEntry
from engine_patch.costs import StepCost
from engine_patch.published import COSTS, JOURNAL, Rank, RankFacts, RankLive


class Observer:
    """Reads what the ranks publish; parses facts and journals only when they changed."""

    def __init__(self, folder: Path) -> None:
        self._board = shm.Board(folder)
        self._facts: dict[str, tuple[int, RankFacts]] = {}
        self._costs: dict[str, tuple[int, tuple[StepCost, ...]]] = {}
        self._journals: dict[str, tuple[int, tuple[JournalEntry, ...]]] = {}

    def ranks(self, since: int = 0) -> list[Rank]:
        """Every rank of this host that has published its facts.

        Args:
            since: journals without an entry above it are not read: hundreds of entries cost more
                than all else.
        """
        now = time.monotonic_ns()
        seen = []
        for name, file in self._board.ranks():
            facts = self._fact(name, file)
            if facts is None:
                continue
            live = file.read("live")
            said = None if live is None else RankLive.model_validate_json(live.payload)
            news = said is None or said.switches > since
            seen.append(
                Rank(
                    facts=facts,
                    live=said,
                    age_ms=0.0 if live is None else max(0.0, (now - live.at_ns) / 1e6),
                    sample=0 if live is None else live.number,
                    journal=self._journal(name, file) if news else (),
                    costs=self._cost(name, file),
                )
            )
        return seen

    def _fact(self, name: str, file: shm.RankFile) -> RankFacts | None:
        reading = file.read("facts")
        if reading is None:
            return None
        known = self._facts.get(name)
        if known is None or known[0] != reading.number:
            known = (reading.number, RankFacts.model_validate_json(reading.payload))
            self._facts[name] = known
        return known[1]

    def _journal(self, name: str, file: shm.RankFile) -> tuple[JournalEntry, ...]:
        reading = file.read("journal")
        if reading is None:
            return ()
        known = self._journals.get(name)
        if known is None or known[0] != reading.number:
            known = (reading.number, JOURNAL.validate_json(reading.payload))
            self._journals[name] = known
        return known[1]

    def _cost(self, name: str, file: shm.RankFile) -> tuple[StepCost, ...]:
        reading = file.read("costs")
        if reading is None:
            return ()
        known = self._costs.get(name)
        if known is None or known[0] != reading.number:
            known = (reading.number, COSTS.validate_json(reading.payload))
            self._costs[name] = known
        return known[1]
