"""Rules for groups and the whole fleet, as they are written down.  Frozen and pure."""

from __future__ import annotations

from enum import StrEnum

from engine_patch.tier import Frozen
from store.policies import Policy, Stance


class RuleKind(StrEnum):
    """What a fleet rule says."""

    STOP = "stop"
    """Automation rests."""
    POLICY = "policy"
    """Run this policy."""


class FleetRule(Frozen):
    """What a person decided for a group or the whole fleet, engines to come included.

    Args:
        group: "" for every engine.
        policy, stance, delegate: only of a rule that gives a policy.
        ended_utc_ms: when it ended, None while in force.
    """

    id: int = 0
    kind: RuleKind
    group: str = ""
    policy: Policy | None = None
    stance: Stance | None = None
    delegate: bool | None = None
    author: str
    reason: str = ""
    created_utc_ms: int
    ended_utc_ms: int | None = None
    ended_by: str = ""
