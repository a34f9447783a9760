"""What a person may ask of an engine: checks and records of overrides.  Pure.

Each refusal says what is allowed.
"""

from __future__ import annotations

from controlplane.capabilities import observing_only, refusal
from controlplane.errors import ProblemError
from controlplane.messages import ExtendRequest, OverrideRequest
from engine_patch.tier import Thresholds
from store.observations import EngineFacts
from store.policies import FixedPolicy, Policy
from store.records import Override


def check_commandable(engine_id: str, facts: EngineFacts | None) -> EngineFacts:
    """The facts of an engine that can be commanded.

    Raises:
        ProblemError: 409, nothing is known of it yet or it is read-only.
    """
    if facts is None:
        raise ProblemError(
            409, "not_reached", f"engine {engine_id} has not answered yet, so its tiers are unknown"
        )
    barred = observing_only(facts)
    if barred is not None:
        raise ProblemError(409, "read_only", f"engine {engine_id} is read-only: {barred}")
    return facts


def check_tiers(engine_id: str, policy: Policy, facts: EngineFacts | None) -> None:
    """Refuse a policy over tiers that the engine has not built.

    Raises:
        ProblemError: 422, with those that were.
    """
    built = [tier.name for tier in facts.tiers] if facts is not None else []
    wanted = (policy.tier,) if isinstance(policy, FixedPolicy) else policy.tiers
    strangers = [tier for tier in wanted if built and tier not in built]
    if strangers:
        raise ProblemError(
            422,
            "not_possible",
            f"engine {engine_id} has not built {', '.join(strangers)}; built are: "
            f"{', '.join(built)}",
        )


def make_override(
    request: OverrideRequest,
    *,
    engine_id: str,
    facts: EngineFacts | None,
    thresholds: Thresholds | None,
    author: str,
    now_utc_ms: int,
    longest_s: float,
) -> Override:
    """The override to store.

    Args:
        thresholds: what the engine would apply in mode auto, None if it has none.
        longest_s: the ceiling on an override's length.

    Raises:
        ProblemError: 409 for an engine that cannot be commanded, 422 for a tier that was not built
            or a length above the ceiling.
    """
    known = check_commandable(engine_id, facts)
    reason = refusal(known, request.mode, request.tier, thresholds)
    if reason is not None:
        raise ProblemError(422, "not_possible", f"engine {engine_id}: {reason}")
    if request.length_s > longest_s:
        raise ProblemError(
            422,
            "too_long",
            f"{request.length_s:g} s is too long: an override may run {longest_s:g} s at most "
            "(setting override_max_s)",
        )
    return Override(
        engine_id=engine_id,
        mode=request.mode,
        tier=request.tier,
        author=author,
        reason=request.reason,
        guards=request.guards,
        created_utc_ms=now_utc_ms,
        expires_utc_ms=now_utc_ms + max(round(request.length_s * 1000), 1),
        granted_s=request.length_s,
    )


def extended(
    override: Override,
    request: ExtendRequest,
    *,
    left_s: float,
    now_utc_ms: int,
    longest_s: float,
) -> Override:
    """The override with a later end.

    Args:
        left_s: seconds it still has by the monotonic clock; wall time may have been set since.

    Raises:
        ProblemError: 422, it would have longer to run than the ceiling.
    """
    left = max(left_s, 0.0)
    if left + request.extra_s > longest_s:
        raise ProblemError(
            422,
            "too_long",
            f"{request.extra_s:g} s more is too long: an override may have {longest_s:g} s left at "
            f"most (setting override_max_s), and this one has {left:.0f} s",
        )
    return override.model_copy(
        update={
            "expires_utc_ms": now_utc_ms + max(round((left + request.extra_s) * 1000), 1),
            "granted_s": override.granted_s + request.extra_s,
        }
    )
