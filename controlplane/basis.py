"""What a step rests on besides state and observation, and what follows from it alone.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.capabilities import measured
from controlplane.orders import Rules
from controlplane.plan import Plan
from controlplane.planning import make_plan
from controlplane.turns import Turn
from controlplane.verdicts import read_only_text
from engine_patch.costs import StepCost
from engine_patch.tier import Frozen
from store.observations import EngineFacts
from store.policies import PolicyConfig, Stance


class ControllerConfig(Frozen):
    """Everything a step rests on besides state and observation.

    Args:
        holder: the name under which this control plane claims engines.
        costs: the step-cost table of this setup; empty if there is none.
        read_only: never command this engine, whatever it could do.
        turn: when it may begin a change; None for always.
        takeover_from: the holder whose claim a person decided to take over; "" for nobody.
    """

    policy: PolicyConfig
    facts: EngineFacts
    holder: str
    costs: tuple[StepCost, ...] = ()
    read_only: bool = False
    turn: Turn | None = None
    takeover_from: str = ""


@dataclass(frozen=True, slots=True)
class Basis:
    """What follows from a configuration alone; rebuilt when the configuration is another one."""

    config: ControllerConfig
    plan: Plan
    rules: Rules
    lease_ms: int
    stale_after_ms: int
    read_only: str
    warnings: tuple[str, ...]


def make_basis(config: ControllerConfig) -> Basis:
    policy = config.policy
    plan = make_plan(
        policy.policy, config.facts, config.costs, rules=policy.rules, delegate=policy.delegate
    )
    read_only = read_only_text(config.facts, read_only=config.read_only)
    warnings = plan.warnings
    if (
        policy.stance is Stance.SHADOW
        and not read_only
        and not measured(config.facts, config.costs)
    ):
        warnings = (*warnings, "not measured for this setup: automation only watches")
    return Basis(
        config=config,
        plan=plan,
        rules=Rules(policy.engine_id, round(policy.command_timeout_s * 1000), policy.retries),
        lease_ms=round(policy.lease_s * 1000),
        stale_after_ms=round(policy.stale_after_s * 1000),
        read_only=read_only,
        warnings=warnings,
    )
