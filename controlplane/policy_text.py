"""Policy versions for people: one line, all numbers, and changes written KEY=VALUE.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from store.policies import (
    DAYS,
    FixedPolicy,
    GoodputPolicy,
    HysteresisPolicy,
    Policy,
    PolicyConfig,
    Window,
)

_POLICY: TypeAdapter[Policy] = TypeAdapter(Policy)
_KINDS: Mapping[str, type[HysteresisPolicy | GoodputPolicy | FixedPolicy]] = {
    "hysteresis": HysteresisPolicy,
    "goodput": GoodputPolicy,
    "fixed": FixedPolicy,
}


def version_line(config: PolicyConfig) -> str:
    """``version 7  active  hysteresis  by alice  2026-11-29 12:04:31Z  reason``."""
    at = datetime.fromtimestamp(config.created_utc_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    line = (
        f"version {config.version}  {config.stance}  {config.policy.kind}  by {config.author}  {at}"
    )
    return f"{line}  {config.reason}".rstrip()


def thresholds_line(policy: Policy) -> str:
    """Tiers and boundaries in one line."""
    if isinstance(policy, FixedPolicy):
        return f"always {policy.tier}"
    if isinstance(policy, GoodputPolicy):
        return f"{' '.join(policy.tiers)}: most expected tok/s, {100 * policy.gain:g} % ahead"
    parts = [policy.tiers[0]]
    for bound, tier in zip(policy.boundaries, policy.tiers[1:], strict=True):
        parts.append(f"-> {tier} at {bound.up_at} req, back at {bound.down_at}")
    return " ".join(parts)


def version_text(config: PolicyConfig) -> str:
    """Everything about one version."""
    lines = [version_line(config), thresholds_line(config.policy)]
    shown = config.policy.model_dump(mode="json") | {
        name: getattr(config, name)
        for name in (
            "command_timeout_s",
            "retries",
            "lease_s",
            "stale_after_s",
            "delegate",
            "rules",
        )
    }
    width = max(len(name) for name in shown)
    lines += [
        f"  {name:<{width}}  {'-' if value is None else json.dumps(value)}"
        for name, value in shown.items()
        if name not in ("kind", "tiers", "tier", "boundaries")
    ]
    lines += [f"  window  {window_text(one)}" for one in config.windows]
    return "\n".join(lines)


def changes_between(old: PolicyConfig, new: PolicyConfig) -> list[str]:
    """``up_hold_s 2.0 -> 4.0`` for every number that differs."""

    def told(config: PolicyConfig) -> dict[str, Any]:
        beside = {
            "stance": config.stance.value,
            "delegate": config.delegate,
            "windows": [window_text(one) for one in config.windows],
        }
        return config.policy.model_dump(mode="json") | beside

    before, after = told(old), told(new)
    return [
        f"{name} {json.dumps(before.get(name))} -> {json.dumps(after.get(name))}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def changed_policy(present: Policy, kind: str | None, changes: Sequence[str]) -> Policy:
    """The policy with some keys set to other values, or as another kind.

    Args:
        kind: another kind keeps what both kinds have.
        changes: ``KEY=VALUE``; the value is JSON, or a plain word.

    Raises:
        ValueError: a change cannot be read, or the policy would not be possible.
    """
    values = present.model_dump(mode="json")
    if kind is not None and kind != present.kind:
        model = _KINDS.get(kind)
        if model is None:
            raise ValueError(f"{kind!r} is no policy kind; kinds are: {', '.join(_KINDS)}")
        values = {key: value for key, value in values.items() if key in model.model_fields}
        if kind == "fixed" and isinstance(present, HysteresisPolicy | GoodputPolicy):
            values["tier"] = present.tiers[0]
        if kind == "hysteresis" and "boundaries" not in values:
            values["boundaries"] = []
        values["kind"] = kind
    for change in changes:
        key, sign, text = change.partition("=")
        if not sign or not key:
            raise ValueError(f"{change!r}: write KEY=VALUE, for example up_hold_s=4")
        values[key.strip()] = _value(text)
    return _POLICY.validate_python(values)


def read_window(text: str) -> Window:
    """``mon-fri 22:00-06:00 paused``, ``daily 02:00-03:00 shadow``, ``sat,sun 00:00-00:00 paused``.

    Raises:
        ValueError: it is written otherwise.
    """
    words = text.split()
    times = words[1].partition("-") if len(words) == 3 else ("", "", "")
    if not times[1]:
        raise ValueError(
            f"{text!r}: write DAYS HH:MM-HH:MM STANCE, like mon-fri 22:00-06:00 paused"
        )
    return Window.model_validate(
        {"days": _days(words[0]), "start": times[0], "end": times[2], "stance": words[2]}
    )


def window_text(window: Window) -> str:
    """The same written back."""
    days = ",".join(window.days) or "daily"
    return f"{days} {window.start}-{window.end} {window.stance} (UTC)"


def _days(text: str) -> tuple[str, ...]:
    if text == "daily":
        return ()
    found: list[str] = []
    for part in text.split(","):
        first, sign, last = part.partition("-")
        if first not in DAYS or (sign and last not in DAYS):
            raise ValueError(f"{part!r} is no weekday: daily, {', '.join(DAYS)}, or mon-fri")
        at, end = DAYS.index(first), DAYS.index(last if sign else first)
        found += [DAYS[(at + step) % 7] for step in range((end - at) % 7 + 1)]
    return tuple(dict.fromkeys(found))


def read_policy(values: Mapping[str, Any]) -> Policy:
    """A policy table of a file.

    Raises:
        ValueError: it is none.
    """
    return _POLICY.validate_python(dict(values))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
