"""A server explained in plain words: what it is, what can be done with it, what is wrong.  Pure.

Everything follows from ``controlplane.capabilities``; nothing about engines is known here alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from controlplane.capabilities import (
    OffWorth,
    abilities,
    cap_note,
    measured,
    observing_only,
    off_note,
    setup_key,
)
from engine_patch.contract import PROTOCOL
from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Wire
from store.observations import EngineFacts, PluginStatus, Sample

MIB = 2**20


class Level(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"
    WRONG = "wrong"


class Finding(Wire):
    """One thing about the server.

    Args:
        do: what to do about it, "" if nothing.
    """

    level: Level
    text: str
    do: str = ""


class Fact(Wire):
    """One labelled fact; ``value`` None where the server does not tell."""

    name: str
    value: str | None


class Diagnosis(Wire):
    """Everything found out about one server.

    Args:
        state: "patched", "unpatched", "refused", "protocol", or "unreachable", "unauthorised",
            "control plane", "no engine" when there is nothing to examine.
        summary: the whole in one sentence.
    """

    url: str
    state: str
    summary: str
    simulated: bool = False
    setup_key: str = ""
    facts: tuple[Fact, ...] = ()
    tiers: tuple[Fact, ...] = ()
    abilities: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether it can be steered and nothing is wrong."""
        return self.state == "patched" and all(
            finding.level is not Level.WRONG for finding in self.findings
        )


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
    wrong = _wrong(facts, sample, tuple(costs), url)
    return Diagnosis(
        url=url,
        state=state,
        summary=_summary(facts, wrong),
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
        findings=tuple(wrong),
    )


def nothing(url: str, state: str, summary: str, do: str) -> Diagnosis:
    """A server that could not be examined, and what to do."""
    found = Finding(level=Level.WRONG, text=summary, do=do)
    return Diagnosis(url=url, state=state, summary=summary, findings=(found,))


def _summary(facts: EngineFacts, wrong: Sequence[Finding]) -> str:
    versions = facts.versions
    name = "a server" if versions is None else f"{versions.engine} {versions.engine_version}"
    if facts.simulated:
        name = f"a simulated engine ({facts.simulation_table or 'no table named'})"
    barred = observing_only(facts)
    steer = "can be steered" if barred is None else "can be observed, not steered"
    count = sum(finding.level is Level.WRONG for finding in wrong)
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


def _wrong(
    facts: EngineFacts, sample: Sample | None, costs: tuple[StepCost, ...], url: str
) -> list[Finding]:
    """What is misconfigured or missing, worst first."""
    found = _plugin(facts)
    found += _metrics(facts)
    if sample is None:
        found.append(
            Finding(
                level=Level.WRONG,
                text="it introduced itself, but a poll right after it failed",
                do="run the doctor again; if that repeats, look at the engine's log",
            )
        )
    if facts.plugin is PluginStatus.PRESENT:
        found += _steering(facts, costs, url)
    if note := cap_note(facts):
        found.append(
            Finding(
                level=Level.WRONG,
                text=note,
                do="start SGLang with --max-running-requests N, the same N with and without "
                "speculation",
            )
        )
    if sample is not None:
        found += _now(sample)
    order = (Level.WRONG, Level.NOTE, Level.GOOD)
    return sorted(found, key=lambda finding: order.index(finding.level))


def _plugin(facts: EngineFacts) -> list[Finding]:
    barred = observing_only(facts)
    if barred is None:
        return []
    do = {
        PluginStatus.ABSENT: "pip install 'specdeck[engine]' in the engine's environment and "
        "restart it; until then it can be recorded and benchmarked",
        PluginStatus.REFUSED: "run 'specdeck engine check' in the engine's environment: it names "
        "what does not fit and which SGLang versions do",
        PluginStatus.PROTOCOL: f"install the same specdeck on both sides; this one speaks "
        f"protocol {PROTOCOL}",
    }[facts.plugin]
    return [Finding(level=Level.WRONG, text=barred, do=do)]


def _metrics(facts: EngineFacts) -> list[Finding]:
    if "--enable-metrics" not in facts.plugin_message:
        return []
    return [
        Finding(
            level=Level.WRONG,
            text="the server runs without metrics: no tok/s, no accept length, no tier",
            do="start SGLang with --enable-metrics",
        )
    ]


def _steering(facts: EngineFacts, costs: tuple[StepCost, ...], url: str) -> list[Finding]:
    found: list[Finding] = []
    names = [tier.name for tier in facts.tiers]
    speculating = [name for name in names if name != OFF]
    if not speculating:
        found.append(
            Finding(
                level=Level.WRONG,
                text="no speculating tier was built: there is nothing to switch to",
                do="declare tiers when the engine starts (docs/plugin.md)",
            )
        )
    elif len(names) == 1:
        found.append(
            Finding(
                level=Level.WRONG,
                text=f"only tier {names[0]} was built: there is nothing to switch to",
                do="declare a second tier, or off, when the engine starts (docs/plugin.md)",
            )
        )
    elif OFF not in names:
        found.append(
            Finding(
                level=Level.NOTE,
                text="tier off was not built: speculation cannot go away under load",
                do="declare tier off when the engine starts (docs/plugin.md)",
            )
        )
    note = off_note(facts)
    if note.worth is OffWorth.WORSE:
        found.append(
            Finding(
                level=Level.WRONG,
                text=f"off is slower than a plain server: {note.text}",
                do="automation never picks it here; use a plugin that builds the plain path, or "
                "attention backend fa3",
            )
        )
    found += [
        Finding(level=Level.NOTE, text=f"{one.name} is not available: {one.reason or 'no reason'}")
        for one in facts.capabilities
        if not one.available
    ]
    if not measured(facts, costs):
        found.append(
            Finding(
                level=Level.NOTE,
                text="not measured for this setup: automation begins in shadow",
                do="specdeck bench, then apply what it proposes",
            )
        )
    if not _loopback(url):
        found.append(
            Finding(
                level=Level.NOTE,
                text="commands from another machine need SGLang's admin key",
                do="start SGLang with --admin-api-key, and give the control plane the same by "
                "admin_key_file",
            )
        )
    return found


def _loopback(url: str) -> bool:
    host = url.partition("://")[2].partition("/")[0]
    return host.startswith(("127.", "localhost", "[::1]"))


def _now(sample: Sample) -> list[Finding]:
    found: list[Finding] = []
    unseen = sum(rank.tier is None for rank in sample.applied)
    seen = {rank.tier for rank in sample.applied if rank.tier is not None}
    if len(seen) > 1:
        found.append(
            Finding(
                level=Level.WRONG,
                text=f"ranks run different tiers: {', '.join(sorted(seen))}",
                do="TP ranks of one replica must agree: restart the engine; replicas in mode auto "
                "may differ",
            )
        )
    if unseen:
        found.append(
            Finding(
                level=Level.NOTE,
                text=f"{unseen} of {len(sample.applied)} ranks are not observed from this host",
                do="they are never counted as confirmed",
            )
        )
    if sample.claim_holder is not None:
        left = sample.claim_remaining_s
        for_s = "" if left is None else f" for {left:.0f} s still"
        found.append(
            Finding(
                level=Level.NOTE,
                text=f"{sample.claim_holder} holds this engine{for_s}",
                do="another control plane is refused until then; one engine, one control plane",
            )
        )
    if sample.simulation_valid is False:
        found.append(
            Finding(
                level=Level.WRONG,
                text="the simulation fell behind: its times are invalid",
                do="give the machine less to do, or simulate a smaller load",
            )
        )
    return found


def text(diagnosis: Diagnosis) -> str:
    """The diagnosis for a person."""
    lines = [diagnosis.url, diagnosis.summary]
    if diagnosis.facts:
        width = max(len(fact.name) for fact in diagnosis.facts)
        lines.append("")
        lines += [f"  {fact.name:<{width}}  {fact.value or '-'}" for fact in diagnosis.facts]
    if diagnosis.tiers:
        lines += ["", "tiers"]
        lines += [f"  {fact.name:<10} {fact.value or '-'}" for fact in diagnosis.tiers]
    if diagnosis.abilities:
        lines += ["", "what can be done"]
        lines += [
            f"  {'+' if one.level is Level.GOOD else '-'} {one.text}" for one in diagnosis.abilities
        ]
    if diagnosis.findings:
        lines += ["", "what to know"]
        for finding in diagnosis.findings:
            lines.append(f"  {'!' if finding.level is Level.WRONG else '-'} {finding.text}")
            if finding.do:
                lines.append(f"      {finding.do}")
    return "".join(f"{_plain(one)}\n" for one in lines)


def _plain(line: str) -> str:
    """``line`` with nothing in it that a terminal would act on: servers wrote parts of it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
