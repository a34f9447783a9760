"""In words what starting, cancelling and applying a benchmark will do.  Pure."""

from __future__ import annotations

from console.formatting import length
from console.scene import Scene
from controlplane.bench_propose import Proposal
from controlplane.benchrun_apply import thresholds_words
from controlplane.benchrun_messages import BenchRequest, BenchStatus
from controlplane.messages import PolicyRequest
from engine_patch.contract import Identity
from store.policies import HysteresisPolicy, Stance


def start_effect(request: BenchRequest, scene: Scene) -> tuple[str, ...]:
    """What a benchmark does to the engine, in sentences."""
    facts = scene.board.facts
    tiers = [tier.name for tier in facts.tiers] if facts is not None else []
    said = [
        f"pins {', '.join(tiers) or 'each tier'} in turn for at most {length(request.budget_s)}, "
        "by overrides that end by themselves",
        f"makes load: up to {max(request.concurrency)} requests at once, "
        f"{request.input_len} tokens in and {request.output_len} out",
        "automation rests meanwhile and goes on afterwards",
    ]
    now = None if scene.board.sample is None else scene.board.sample.concurrency
    if now and not request.allow_traffic:
        said.append(f"{now} requests run now: it will be refused beside them")
    if request.allow_traffic:
        said.append("others' requests get slower, and spoil the points they run beside")
    cap = _cap(facts.identity if facts is not None else None)
    if cap is not None and max(request.concurrency) > cap:
        said.append(f"above the cap of {cap} running requests nothing can be compared")
    return tuple(said)


def _cap(identity: Identity | None) -> int | None:
    if identity is None or identity.max_running_requests is None:
        return None
    return identity.max_running_requests * identity.dp_size


def cancel_effect(running: BenchStatus) -> tuple[str, ...]:
    """What cancelling does."""
    return (
        f"benchmark {running.id} of {running.author} ends now; the pin is released and the engine "
        "goes on as before",
        f"what was measured is kept: {running.done_runs} of {running.total_runs} runs",
    )


def apply_effect(proposal: Proposal, request: PolicyRequest, scene: Scene) -> tuple[str, ...]:
    """Old and new thresholds with the expected gain."""
    present = scene.board.policy
    said = []
    if present is not None:
        now = ""
        if isinstance(present.policy, HysteresisPolicy):
            now = f": {thresholds_words(present.policy)}"
        said.append(f"now version {present.version} by {present.author}{now}")
    if isinstance(request.policy, HysteresisPolicy):
        said.append(f"then {thresholds_words(request.policy)}")
    said.append(f"expected: {proposal.gain}")
    said += [f"note: {note}" for note in proposal.notes]
    if request.stance is Stance.SHADOW:
        said.append("shadow: it computes and records, and commands nothing yet")
    else:
        said.append("active: it commands the engine from the next tick on")
    return tuple(said)
