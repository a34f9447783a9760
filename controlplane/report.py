"""What ``specdeck status`` prints.  Pure: a missing value is written "-", never 0."""

from __future__ import annotations

from controlplane.durations import written
from controlplane.messages import About, EngineStatus
from store.observations import PluginStatus, Sample
from store.records import Override, Tick

STALE_POLLS = 4
"""Polls without a tick after which the loop of an engine counts as stuck."""
STALE_S = 5.0


def degraded(status: EngineStatus) -> list[str]:
    """What is wrong with an engine, in sentences; empty if nothing is."""
    tick = status.tick
    if tick is None:
        return ["not polled yet"]
    found = [alarm.text for alarm in tick.alarms]
    if not isinstance(tick.observation, Sample):
        found.append(f"not reached: {tick.observation.message}")
    age = age_s(status, tick)
    if age > max(STALE_POLLS * status.poll_s, STALE_S):
        found.append(f"the newest tick is {written(age)} old")
    return found


def age_s(status: EngineStatus, tick: Tick) -> float:
    """Seconds since the newest tick, by the control plane's clock."""
    return max(0.0, (status.now_utc_ms - tick.observation.at_utc_ms) / 1000)


def text(about: About, statuses: list[EngineStatus]) -> str:
    """The whole report."""
    parts = [f"specdeck {about.version}, holder {about.holder}\n"]
    if not statuses:
        parts.append("no engine is configured: specdeck serve --engine URL\n")
    parts += [f"! {alarm.text}\n" for alarm in about.alarms]
    parts += [_engine(status) for status in statuses]
    return "\n".join(parts)


def _engine(status: EngineStatus) -> str:
    record, tick = status.engine, status.tick
    name = f" ({record.name})" if record.name else ""
    named_by = f"  ({record.source})" if record.source else ""
    lines = [f"{record.engine_id}{name}  {record.url}{named_by}"]
    if tick is not None:
        lines += _tick(status, tick)
    lines += [f"! {trouble}" for trouble in degraded(status)]
    if tick is not None:
        lines += [f"! {warning}" for warning in tick.warnings]
    return "\n  ".join(lines) + "\n"


def _tick(status: EngineStatus, tick: Tick) -> list[str]:
    held = "" if tick.tier_age_s is None else f" for {written(tick.tier_age_s)}"
    facts = status.engine.facts
    lines = [
        f"confirmed {tick.confirmed or '-'}{held}, desired {tick.desired or '-'}, "
        f"automation {tick.stance}, policy version {tick.policy_version}",
        f"why       {tick.verdict.text}",
    ]
    if tick.override is not None:
        lines.append(f"override  {override_line(tick.override, tick.override_left_s)}")
    if isinstance(tick.observation, Sample):
        sample = tick.observation
        used = sample.kv.used
        lines.append(
            f"now       concurrency {_number(sample.concurrency)} req, "
            f"queued {_number(sample.queued)} req, "
            f"decode {_number(tick.decode_tok_s)} tok/s, "
            f"accept length {_number(sample.accept_length, 2)} tok, "
            f"KV {_number(None if used is None else 100 * used, 1)} %"
        )
        lines.append(
            f"source    {sample.source}, {age_s(status, tick):.1f} s old"
            + (f", fresh sample {tick.stale_s:.1f} s ago" if tick.stale_s > 0 else "")
        )
    if facts is not None and facts.simulated:
        lines.append(f"simulated times, table {facts.simulation_table or '-'}")
    if facts is not None and facts.plugin is not PluginStatus.PRESENT:
        lines.append(f"read-only: {facts.plugin_message or facts.plugin}")
    return lines


def override_line(override: Override, left_s: float | None) -> str:
    """One override in one line."""
    tier = f" {override.tier}" if override.tier else ""
    left = "" if left_s is None else f", {written(left_s)} left"
    return (
        f"{override.mode}{tier} by {override.author}{left}, guards {override.guards}: "
        f"{override.reason}"
    )


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
