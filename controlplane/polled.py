"""What a poll of an engine hands back, and the stamp every observation carries."""

from __future__ import annotations

from dataclasses import dataclass

from engine_patch.costs import StepCost
from store.observations import EngineFacts, Gap, GapReason, Observation
from store.records import RawScrape


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identity and receive time of one observation.

    Args:
        at_utc_ms, at_mono_ms, clock_id: see ``store.observations``.
        latency_ms: from asking until the last answer was there.
    """

    engine_id: str
    seq: int
    at_utc_ms: int
    at_mono_ms: int
    clock_id: str
    latency_ms: float

    def gap(self, reason: GapReason, message: str) -> Gap:
        """This observation as a failed poll."""
        return Gap(
            engine_id=self.engine_id,
            seq=self.seq,
            at_utc_ms=self.at_utc_ms,
            at_mono_ms=self.at_mono_ms,
            clock_id=self.clock_id,
            reason=reason,
            message=message,
        )


@dataclass(frozen=True, slots=True)
class Polled:
    """The outcome of one poll.

    Args:
        facts_changed: the engine's facts if they are new or differ from before, else None.
        costs: the step-cost table the engine last sent; empty if it has none.
        scrapes: the raw answers, only if they were asked for.
    """

    observation: Observation
    facts_changed: EngineFacts | None = None
    costs: tuple[StepCost, ...] = ()
    scrapes: tuple[RawScrape, ...] = ()


class EngineError(Exception):
    """The engine could not be observed; the message is a sentence that says what to do.

    Args:
        reason: the same word a gap carries.
    """

    def __init__(self, reason: GapReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
