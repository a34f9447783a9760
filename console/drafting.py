"""Thresholds as text fields, the policy they make, and how two policies differ.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from console.formatting import Glyphs, seconds
from store.policies import Careful, FixedPolicy, GoodputPolicy, HysteresisPolicy, Policy

Made = TypeVar("Made", HysteresisPolicy, GoodputPolicy)


class DraftError(ValueError):
    """A field is wrong; the message says which and what it takes."""


@dataclass(frozen=True, slots=True)
class Field:
    """One text field.

    Args:
        id: names it in ``drafted``.
        label: what stands before it.
        value: what it begins with.
        unit: what stands after it.
    """

    id: str
    label: str
    value: str
    unit: str


def fields(policy: Policy) -> tuple[tuple[Field, ...], ...]:
    """The fields that change ``policy``, a tuple per row; empty where there is nothing to edit."""
    if isinstance(policy, GoodputPolicy):
        return _goodput_fields(policy)
    if not isinstance(policy, HysteresisPolicy):
        return ()
    rows: list[tuple[Field, ...]] = []
    pairs = zip(policy.tiers, policy.tiers[1:], policy.boundaries, strict=False)
    for place, (_quiet, busy, boundary) in enumerate(pairs):
        rows.append(
            (
                Field(f"up-{place}", busy, str(boundary.up_at), "req or more"),
                Field(f"down-{place}", "back", str(boundary.down_at), "req or fewer"),
            )
        )
    rows.append(
        (
            Field("up_hold_s", "held", f"{policy.up_hold_s:g}", "s"),
            Field("down_hold_s", "back", f"{policy.down_hold_s:g}", "s"),
            Field("min_dwell_s", "dwell", f"{policy.min_dwell_s:g}", "s"),
        )
    )
    floors = [
        Field(
            f"floor-{tier}",
            tier,
            "" if tier not in policy.min_accept_length else f"{policy.min_accept_length[tier]:g}",
            "tok",
        )
        for tier in policy.tiers
        if tier != "off"
    ]
    # Two in a row: the label of the row says what they are.
    rows += [tuple(floors[at : at + 2]) for at in range(0, len(floors), 2)]
    rows.append(_kv_fields(policy))
    return tuple(rows)


def _kv_fields(policy: Careful) -> tuple[Field, ...]:
    return (
        Field("kv_high", "off at", f"{100 * policy.kv_high:g}", "%"),
        Field("kv_low", "back under", f"{100 * policy.kv_low:g}", "%"),
    )


def _goodput_fields(policy: GoodputPolicy) -> tuple[tuple[Field, ...], ...]:
    limit = "" if policy.tpot_ms is None else f"{policy.tpot_ms:g}"
    return (
        (
            Field("gain", "by", f"{100 * policy.gain:g}", "%"),
            Field("hold_s", "for", f"{policy.hold_s:g}", "s"),
            Field("min_dwell_s", "dwell", f"{policy.min_dwell_s:g}", "s"),
        ),
        (Field("tpot_ms", "at most", limit, "ms per token, empty for no limit"),),
        (
            Field("switch_cost_s", "costs", f"{policy.switch_cost_s:g}", "s"),
            Field("horizon_s", "spread over", f"{policy.horizon_s:g}", "s"),
        ),
        _kv_fields(policy),
    )


def row_label(row: tuple[Field, ...]) -> str:
    """What a row of fields is about."""
    first = row[0].id
    for start, words in (
        ("up-", "load"),
        ("floor-", "floor"),
        ("kv_", "KV"),
        ("up_", "times"),
        ("gain", "ahead"),
        ("tpot", "TPOT"),
        ("switch", "change"),
    ):
        if first.startswith(start):
            return words
    return ""


def drafted(policy: Policy, values: Mapping[str, str]) -> Policy:
    """The policy that the fields describe.

    Raises:
        DraftError: a field is no number, or they contradict each other.
    """
    if isinstance(policy, GoodputPolicy):
        return _goodput(policy, values)
    if not isinstance(policy, HysteresisPolicy):
        return policy
    changes = policy.model_dump(mode="json")
    changes["boundaries"] = [
        {
            "up_at": _whole(values[f"up-{place}"], f"the load for {policy.tiers[place + 1]}"),
            "down_at": _whole(
                values[f"down-{place}"], f"the load back from {policy.tiers[place + 1]}"
            ),
        }
        for place in range(len(policy.boundaries))
    ]
    for name in ("up_hold_s", "down_hold_s", "min_dwell_s"):
        changes[name] = _number(values[name], name.removesuffix("_s").replace("_", " "))
    changes |= _kv(values)
    changes["min_accept_length"] = {
        tier: _number(values[f"floor-{tier}"], f"the floor of {tier}")
        for tier in policy.tiers
        if values.get(f"floor-{tier}", "").strip()
    }
    return _made(policy, changes, values)


def _kv(values: Mapping[str, str]) -> dict[str, float]:
    return {
        name: round(_number(values[name], "the share of KV slots") / 100, 6)
        for name in ("kv_high", "kv_low")
    }


def _goodput(policy: GoodputPolicy, values: Mapping[str, str]) -> GoodputPolicy:
    changes: dict[str, Any] = policy.model_dump(mode="json")
    changes["gain"] = round(_number(values["gain"], "the gain in percent") / 100, 6)
    for name in ("hold_s", "min_dwell_s", "switch_cost_s", "horizon_s"):
        changes[name] = _number(values[name], name.removesuffix("_s").replace("_", " "))
    limit = values["tpot_ms"].strip()
    changes["tpot_ms"] = _number(limit, "the time per token") if limit else None
    return _made(policy, changes | _kv(values), values)


def _made(policy: Made, changes: Mapping[str, Any], values: Mapping[str, str]) -> Made:
    # A number is shown with six digits: a field that nobody touched keeps all of them.
    kept = {
        one.id: getattr(policy, one.id)
        for row in fields(policy)
        for one in row
        if values[one.id] == one.value and hasattr(policy, one.id)
    }
    try:
        return type(policy).model_validate({**changes, **kept})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = " ".join(str(part).replace("_", " ") for part in first["loc"])
        words = str(first["msg"]).removeprefix("Value error, ")
        raise DraftError(f"{place}: {words}" if place else words) from None


def _whole(text: str, what: str) -> int:
    text = text.strip()
    if not text.isdecimal() or len(text) > 6:
        raise DraftError(f"{what}: write a whole number of requests, not {text!r}")
    return int(text)


def _number(text: str, what: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise DraftError(f"{what}: write a number, not {text!r}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise DraftError(f"{what}: write a number, not {text!r}")
    return value


def differences(before: Policy, after: Policy, glyphs: Glyphs) -> tuple[str, ...]:
    """What changes from one policy to the other, one sentence each."""
    if before.kind != after.kind:
        return (f"policy {before.kind} {glyphs.arrow} {after.kind}", *_summary(after, glyphs))
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    found: list[str] = []
    for name, value in new.items():
        was = old.get(name)
        if was == value:
            continue
        if name == "boundaries" and isinstance(value, list) and isinstance(was, list):
            found += _boundaries(before, after, glyphs)
        else:
            label = name.removesuffix("_s").replace("_", " ")
            found.append(f"{label} {_written(name, was)} {glyphs.arrow} {_written(name, value)}")
    return tuple(found)


def _boundaries(before: Policy, after: Policy, glyphs: Glyphs) -> list[str]:
    tiers = getattr(after, "tiers", ())
    if getattr(before, "tiers", ()) != tiers:
        return [*boundary_words(after, glyphs)]
    found: list[str] = []
    pairs = zip(getattr(before, "boundaries", ()), getattr(after, "boundaries", ()), strict=False)
    for busy, (was, now) in zip(tiers[1:], pairs, strict=False):
        if was.up_at != now.up_at:
            found.append(f"{busy} at {was.up_at} {glyphs.arrow} {now.up_at} req")
        if was.down_at != now.down_at:
            found.append(f"back from {busy} at {was.down_at} {glyphs.arrow} {now.down_at} req")
    return found


def boundary_words(policy: Policy, glyphs: Glyphs) -> tuple[str, ...]:
    """``s3k1d4 → s1k1d2 at 24, back at 16 req`` for each boundary."""
    tiers = getattr(policy, "tiers", ())
    boundaries = getattr(policy, "boundaries", ())
    return tuple(
        f"{quiet} {glyphs.arrow} {busy} at {boundary.up_at}, back at {boundary.down_at} req"
        for quiet, busy, boundary in zip(tiers, tiers[1:], boundaries, strict=False)
    )


def _summary(policy: Policy, glyphs: Glyphs) -> tuple[str, ...]:
    if isinstance(policy, FixedPolicy):
        return (f"always {policy.tier}",)
    return boundary_words(policy, glyphs)


def _written(name: str, value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float | int) and name.endswith("_s"):
        return seconds(float(value))
    if isinstance(value, float) and (name.startswith("kv_") or name == "gain"):
        return f"{100 * value:g} %"
    return str(value)
