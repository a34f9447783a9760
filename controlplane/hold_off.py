"""The judgement on a change of tier, and the hold-off that a bad one leads to.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine_patch.costs import bucket

NEVER = -1


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a change brought.

    Args:
        bucket: batch bucket it was judged at.
        measured, expected: tok/s after it, and what the tier before it would do at that load.
        noise: share by which ``measured`` may fall short of ``expected``.
    """

    from_tier: str
    to_tier: str
    bucket: int
    measured: float
    expected: float
    noise: float

    @property
    def worse(self) -> bool:
        return self.measured < self.least

    @property
    def least(self) -> float:
        """Lowest tok/s that does not count as worse."""
        return self.expected * (1 - self.noise)


@dataclass(frozen=True, slots=True)
class HoldOff:
    """A tier that made things worse, left alone at that load.

    Args:
        back: the tier that is used instead.
        busier: the change went to a busier tier; the hold-off then counts up to ``bucket``, else
            from ``bucket`` on, because further out the answer may be another one.
        until_ms, gap_ms: when it ends, and how long it was.
        past_ms: since when the load has been further out.
    """

    tier: str
    back: str
    busier: bool
    until_ms: int
    gap_ms: int
    judged: Judgement
    past_ms: int = NEVER

    def counts(self, now_ms: int, hold_ms: int) -> bool:
        """Whether it is in force; a load further out for ``hold_ms`` suspends it."""
        if now_ms >= self.until_ms:
            return False
        return self.past_ms < 0 or now_ms - self.past_ms < hold_ms

    def at(self, load: int, now_ms: int) -> HoldOff:
        """The same at this load."""
        here = bucket(load)
        past = here > self.judged.bucket if self.busier else here < self.judged.bucket
        if past == (self.past_ms >= 0):
            return self
        return replace(self, past_ms=now_ms if past else NEVER)
