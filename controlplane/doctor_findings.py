"""What is misconfigured at a server or missing, each with what to do about it.  Pure."""

from __future__ import annotations

from controlplane.capabilities import OffWorth, cap_note, measured, observing_only, off_note
from controlplane.diagnosis import Finding, Level
from engine_patch.contract import PROTOCOL
from engine_patch.costs import StepCost
from engine_patch.tier import OFF
from store.observations import EngineFacts, PluginStatus, Sample


def findings(
    facts: EngineFacts, sample: Sample | None, costs: tuple[StepCost, ...], url: str
) -> list[Finding]:
    """Everything there is to know, worst first.

    Args:
        sample: one poll of it, None if that failed.
        costs: the step-cost table it told, empty without one.
        url: where it was asked.
    """
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
