"""What a person must know after a step: alarms that stay up, warnings of this tick.  Pure."""

from __future__ import annotations

from controlplane.alarms import Alarms
from controlplane.clauses import seconds
from controlplane.orders import Obedience
from controlplane.policy_state import PolicyState
from controlplane.steering import Decided, Situation
from controlplane.target import replicas_disagree
from store.policies import Stance


def alarms_of(situation: Situation, obedience: Obedience, policy: PolicyState) -> Alarms:
    """Raise what holds now and clear what is over."""
    alarms, at = obedience.alarms, situation.sample.at_utc_ms
    barred = situation.read_only or situation.foreign
    held = policy.watch is not None and policy.watch.held_off
    quiet = not (situation.disagree or situation.stale or barred or held)
    if quiet and not alarms.raised:
        return alarms
    alarms = _worse(alarms, situation, policy, at) if held else alarms.down("switch_reverted")
    alarms = alarms.down("engine_unreachable")
    if situation.disagree:
        text = "; ".join(replicas_disagree(situation.sample))
        alarms = alarms.up("ranks_disagree", f"automation stopped: {text}", at)
    else:
        alarms = alarms.down("ranks_disagree")
    if situation.foreign:
        alarms = alarms.up("foreign_claim", situation.foreign, at)
    else:
        alarms = alarms.down("foreign_claim")
    if situation.stale and not situation.read_only:
        text = f"no new numbers for {seconds(situation.time.stale_ms())} though the engine answers"
        alarms = alarms.up("metrics_stale", text, at)
    else:
        alarms = alarms.down("metrics_stale")
    if situation.granted is not None and barred:
        alarms = alarms.up("override_blocked", f"the override cannot act: {barred}", at)
    else:
        alarms = alarms.down("override_blocked")
    return alarms


def _worse(alarms: Alarms, situation: Situation, policy: PolicyState, at: int) -> Alarms:
    """A tier that made things worse is left alone: told as long as that lasts."""
    watch, now = policy.watch, situation.now_ms
    held = () if watch is None else watch.held_off
    one = next((one for one in held if now < one.until_ms), None)
    if one is None or not situation.automatic:
        return alarms.down("switch_reverted")
    plan, found = situation.plan, one.judged
    text = (
        f"{plan.say(one.back)} to {plan.say(one.tier)} made things worse at up to "
        f"{found.bucket} requests: {found.measured:.0f} tok/s, not the {found.expected:.0f} "
        f"expected (noise {found.noise * 100:.0f} %); taken back and held off for "
        f"{one.gap_ms / 1000:.0f} s"
    )
    return alarms.up("switch_reverted", text, at)


def warnings_of(situation: Situation, decided: Decided) -> tuple[str, ...]:
    """What is worth knowing about this tick alone."""
    sample, found = situation.sample, []
    if sample.journal_hole:
        found.append("the engine's journal has a hole: some of its own switches are not known")
    if sample.unseen_replicas:
        many = "replica" if sample.unseen_replicas == 1 else "replicas"
        found.append(
            f"{sample.unseen_replicas} {many} cannot be seen: load, KV and rates are those of the "
            "others"
        )
    if sample.simulation_valid is False:
        lag = "" if sample.simulation_lag is None else f": {sample.simulation_lag * 100:.1f} % lag"
        found.append(f"simulated times are not valid in this run{lag}")
    if decided.choice is not None and decided.choice.helpless:
        found.append("KV slots are short and no tier the policy may use gives any back")
    lease = situation.time.lease_ms - situation.now_ms
    resting = situation.granted is None and situation.stance is not Stance.ACTIVE
    if resting and sample.claim_holder == situation.holder and lease > 0:
        found.append(
            f"automation is {situation.stance.value}: the engine's lease ends in "
            f"{seconds(lease)}, then it goes on by itself"
        )
    if situation.stale and situation.read_only and sample.concurrency:
        found.append(f"no new numbers for {seconds(situation.time.stale_ms())}")
    return tuple(found)
