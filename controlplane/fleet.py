"""An engine's status in one short row.  Pure."""

from __future__ import annotations

from controlplane.messages import EngineStatus, FleetRow
from store.observations import Gap, Sample

TEXT = 200
"""Characters of a verdict or message that a row carries."""


def fleet_row(status: EngineStatus) -> FleetRow:
    """The row of one engine."""
    record, tick, policy = status.engine, status.tick, status.policy
    facts = record.facts
    identity = None if facts is None else facts.identity
    row = FleetRow(
        engine_id=record.engine_id,
        name=record.name,
        group=record.group,
        model="" if identity is None else identity.model,
        plugin=None if facts is None else facts.plugin,
        simulated=facts is not None and facts.simulated,
        stance=None if policy is None else policy.stance,
        policy="" if policy is None else policy.policy.kind,
        tiers=() if facts is None else tuple(tier.name for tier in facts.tiers),
        poll_s=status.poll_s,
    )
    if tick is None:
        return row
    seen = tick.observation
    since_s = max(status.now_utc_ms - seen.at_utc_ms, 0) / 1000
    never = isinstance(seen, Gap) and tick.tier_age_s is None and tick.stale_s <= 0
    row = row.model_copy(
        update={
            "stance": tick.stance,
            "desired": tick.desired,
            "confirmed": tick.confirmed,
            "tier_age_s": tick.tier_age_s,
            "asked": None if tick.pending is None else tick.pending.to_tier,
            "override_by": "" if tick.override is None else tick.override.author,
            "override_left_s": tick.override_left_s,
            "reason": tick.verdict.reason,
            "text": tick.verdict.text[:TEXT],
            "alarms": tick.alarms,
            "warnings": tick.warnings,
            "age_s": None if never else max(tick.stale_s, 0.0) + since_s,
            "tick_id": tick.id,
        }
    )
    if isinstance(seen, Sample):
        return row.model_copy(
            update={
                "concurrency": seen.concurrency,
                "queued": seen.queued,
                "decode_tok_s": tick.decode_tok_s,
                "accept_length": seen.accept_length,
                "kv_used": seen.kv.used,
            }
        )
    return row.model_copy(update={"gap": seen.message[:TEXT]})
