"""A server explained in plain words: what it is, what can be done with it, what is wrong.  Pure.

Everything follows from ``controlplane.capabilities``; nothing about engines is known here alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.capabilities import abilities, observing_only, setup_key
from controlplane.diagnosis import Diagnosis, Fact, Finding, Level
from controlplane.doctor_findings import findings
from engine_patch.costs import StepCost
from store.observations import EngineFacts, PluginStatus, Sample

MIB = 2**20

_STATES = {
    PluginStatus.PRESENT: "patched",
    PluginStatus.ABSENT: "unpatched",
    PluginStatus.REFUSED: "refused",
    PluginStatus.PROTOCOL: "protocol",
}


def examine(
    url: str, facts: EngineFacts, sample: Sample | None, costs: Sequence[StepCost] = ()
) -> Diagnosis:
    """Explain a server that answered.

    Args:
        sample: one poll of it, None if that failed.
        costs: the step-cost table it told, empty without one.
    """
    state = _STATES[facts.plugin]
    found = findings(facts, sample, tuple(costs), url)
    return Diagnosis(
        url=url,
        state=state,
        summary=_summary(facts, found),
        simulated=facts.simulated,
        setup_key=setup_key(facts),
        facts=tuple(_facts(facts, sample)),
        tiers=tuple(_tiers(facts)),
        abilities=tuple(
            Finding(
                level=Level.GOOD if one.available else Level.NOTE, text=f"{one.name}: {one.text}"
            )
            for one in abilities(facts)
        ),
        findings=tuple(found),
    )


def nothing(url: str, state: str, summary: str, do: str) -> Diagnosis:
    """A server that could not be examined, and what to do."""
    found = Finding(level=Level.WRONG, text=summary, do=do)
    return Diagnosis(url=url, state=state, summary=summary, findings=(found,))


def _summary(facts: EngineFacts, found: Sequence[Finding]) -> str:
    versions = facts.versions
    name = "a server" if versions is None else f"{versions.engine} {versions.engine_version}"
    if facts.simulated:
        name = f"a simulated engine ({facts.simulation_table or 'no table named'})"
    barred = observing_only(facts)
    steer = "can be steered" if barred is None else "can be observed, not steered"
    count = sum(finding.level is Level.WRONG for finding in found)
    trouble = {0: "nothing is wrong", 1: "1 thing is wrong"}.get(count, f"{count} things are wrong")
    return f"{name}: {steer}; {trouble}"


def _facts(facts: EngineFacts, sample: Sample | None) -> list[Fact]:
    versions, identity = facts.versions, facts.identity
    plugin = facts.plugin.value
    if versions is not None and facts.plugin is PluginStatus.PRESENT:
        plugin = f"{versions.plugin_version}, protocol {facts.protocol}"
    found = [
        Fact(
            name="engine",
            value=None if versions is None else f"{versions.engine} {versions.engine_version}",
        ),
        Fact(name="plugin", value=plugin),
    ]
    if facts.simulated:
        found.append(Fact(name="times", value=f"SIMULATED, table {facts.simulation_table or '-'}"))
    if identity is not None:
        gpu = None if identity.gpu is None else f"{identity.gpu_count} x {identity.gpu}"
        cap = None
        if identity.max_running_requests is not None:
            cap = f"{identity.max_running_requests} per replica"
            cap += f", origin: {identity.cap_origin}" if identity.cap_origin else ""
        found += [
            Fact(name="model", value=identity.model),
            Fact(name="draft", value=identity.draft_model),
            Fact(name="algorithm", value=identity.algorithm),
            Fact(name="GPU", value=gpu),
            Fact(name="TP / DP", value=f"{identity.tp_size} / {identity.dp_size}"),
            Fact(name="attention", value=identity.attention_backend),
            Fact(name="cap on running requests", value=cap),
            Fact(
                name="KV slots per replica",
                value=None if identity.kv_capacity is None else str(identity.kv_capacity),
            ),
        ]
    if sample is not None:
        found += [
            Fact(name="runs now", value=sample.engine_tier),
            Fact(
                name="running requests",
                value=None if sample.concurrency is None else str(sample.concurrency),
            ),
            Fact(name="held by", value=sample.claim_holder),
        ]
    return found


def _tiers(facts: EngineFacts) -> list[Fact]:
    found = []
    for tier in facts.tiers:
        parts = [f"reserves {2 * tier.alloc_len} KV slots per request"]
        if tier.memory_bytes is not None:
            parts.append(f"{tier.memory_bytes / MIB:.0f} MiB")
        if tier.off_kind is not None:
            parts.append(f"runs as {tier.off_kind.value.replace('_', ' ')}")
        if tier.name == facts.launch_tier:
            parts.append("launch tier")
        found.append(Fact(name=tier.name, value=", ".join(parts)))
    return found
