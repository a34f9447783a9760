"""An override's granted time: counted on the controller's time line, never more than granted.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from store.observations import Sample
from store.records import Override


@dataclass(frozen=True, slots=True)
class Granted:
    """An override in force.

    Args:
        ends_ms: when it ends on the controller's time line.
        doubtful: UTC stood before the override's creation when it was read back, so the time left
            rests on nothing; the engine's own lease bounds it as soon as that is seen.
    """

    override: Override
    ends_ms: int
    doubtful: bool = False

    def left_ms(self, now_ms: int) -> int:
        """Time left, 0 or more."""
        return max(self.ends_ms - now_ms, 0)


def grant(before: Granted | None, override: Override, now_ms: int, at_utc_ms: int) -> Granted:
    """``override`` in force from ``now_ms`` on, which is ``at_utc_ms`` by the wall clock.

    A changed version of the override in force (same id) moves its end by the difference of the two
    grants, so a wall clock that was stepped meanwhile does not matter.  Any other one has what UTC
    leaves of it, at most what was granted.
    """
    if before is not None and _same(before.override, override):
        more = round((override.granted_s - before.override.granted_s) * 1000)
        return Granted(override, before.ends_ms + more, before.doubtful)
    granted_ms = int(override.granted_s * 1000)
    left = min(override.expires_utc_ms - at_utc_ms, granted_ms)
    return Granted(override, now_ms + left, at_utc_ms < override.created_utc_ms)


def _same(one: Override, other: Override) -> bool:
    """Whether two records are versions of one override; ids count once both are stored."""
    if one.id and other.id:
        return one.id == other.id
    return (one.created_utc_ms, one.author, one.mode, one.tier) == (
        other.created_utc_ms,
        other.author,
        other.mode,
        other.tier,
    )


def bounded_by_lease(granted: Granted, sample: Sample, holder: str, now_ms: int) -> Granted:
    """Settle a doubtful end by the engine's lease on our own claim, which ran on its clock."""
    if not granted.doubtful:
        return granted
    asked = granted.override
    ours = sample.claim_holder == holder and sample.mode is asked.mode
    ours = ours and asked.tier in (None, sample.desired_tier)
    if not ours or sample.lease_remaining_s is None:
        return replace(granted, doubtful=False)
    ends = now_ms + int(sample.lease_remaining_s * 1000)
    return replace(granted, ends_ms=min(granted.ends_ms, ends), doubtful=False)


def ended(granted: Granted, at_utc_ms: int, by: str) -> Override:
    """The override's record with its end."""
    return granted.override.model_copy(update={"ended_utc_ms": at_utc_ms, "ended_by": by})
