"""What a benchmark measures, as its sweep sees it, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.benchrun_flow import FlowProcess
from store.observations import EngineFacts, Sample


class StoppedError(Exception):
    """The benchmark cannot go on; the message is a sentence."""


class Subject(Protocol):
    """One server with its load."""

    flow: FlowProcess

    @property
    def facts(self) -> EngineFacts:
        """What is known of the server."""
        ...

    async def pin(self, tier: str, hold_s: float) -> bool:
        """Run ``tier`` for at least ``hold_s`` from now on; False if it was not confirmed.

        Raises:
            StoppedError: it may not be pinned any more.
        """
        ...

    def samples(self) -> Sequence[Sample]:
        """The newest polls, oldest first."""
        ...

    def trouble(self) -> str:
        """Why the server is not there now; "" if it is."""
        ...

    def look(self) -> None:
        """Poll now."""
        ...


@dataclass
class Progress:
    """How far a sweep is.

    Args:
        phase: what it does now, for people.
        left_s: seconds it may still take.
    """

    phase: str = "starting"
    done: int = 0
    total: int = 0
    left_s: float | None = None
