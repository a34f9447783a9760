"""What a person must know after a step: alarms that stay up, warnings of this tick.  Pure."""

from __future__ import annotations

from controlplane.alarms import Alarms
from controlplane.clauses import seconds
from controlplane.orders import Obedience
from controlplane.steering import Decided, Situation
from controlplane.target import replicas_disagree
from store.policies import Stance


def alarms_of(situation: Situation, obedience: Obedience) -> Alarms:
    """Raise what holds now and clear what is over."""
    alarms, at = obedience.alarms, situation.sample.at_utc_ms
    barred = situation.read_only or situation.foreign
    quiet = not (situation.disagree or situation.stale or barred)
    if quiet and not alarms.raised:
        return alarms
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


def warnings_of(situation: Situation, decided: Decided) -> tuple[str, ...]:
    """What is worth knowing about this tick alone."""
    sample, found = situation.sample, []
    if sample.journal_hole:
        found.append("the engine's journal has a hole: some of its own switches are not known")
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
