"""The override section, and in words what each action would send.  Pure."""

from __future__ import annotations

import json

from console.formatting import clock, countdown, fit, length, zone_name
from console.header import lease_words
from console.scene import Scene, override_left_s
from console.spans import Line, Role, Span, line, pad, rule
from controlplane.messages import ExtendRequest, OverrideRequest
from engine_patch.contract_words import Mode
from engine_patch.tier import Frozen, TierName
from store.policies import Stance
from store.records import Guards, Override


def section(scene: Scene, cells: int) -> tuple[Line, ...]:
    """The rule and one line: the override in force, or how to set one."""
    title = rule((Span("override", Role.TITLE),), (), cells, scene.glyphs)
    return title, pad(line(" ", _state(scene, cells - 2)), cells, scene.glyphs)


def _state(scene: Scene, cells: int) -> Span:
    dot = f" {scene.glyphs.dot} "
    tick, left = scene.board.tick, override_left_s(scene)
    override = None if tick is None else tick.override
    if override is not None:
        mode = mode_words(override.mode, override.tier)
        quoted = f'"{override.reason}" by {override.author}'
        until = f"until {clock(override.expires_utc_ms, scene.zone)}"
        rest = f"{countdown(left)} left"
        guards = f"guards {override.guards.value}"
        variants = (
            dot.join((mode, quoted, until, rest, guards)),
            dot.join((mode, quoted, rest, guards)),
            dot.join((mode, rest, guards, f"by {override.author}", f'"{override.reason}"')),
        )
        return Span(fit(cells, *variants, glyphs=scene.glyphs), Role.WARNING)
    if scene.readonly:
        return Span(fit(cells, f"none{dot}{scene.readonly}", glyphs=scene.glyphs), Role.LABEL)
    if tick is not None and not scene.board.commandable:
        return Span("none: this engine can be observed, not commanded", Role.LABEL)
    lease = lease_words(scene)
    full = dot.join(part for part in ("none", "m sets one", _fail_safe(lease)) if part)
    short = dot.join(("none", "m sets one"))
    return Span(fit(cells, full, short, glyphs=scene.glyphs), Role.LABEL)


def _fail_safe(lease: str) -> str:
    return f"fail-safe: {lease} without us" if lease.startswith("engine's lease ends") else lease


def mode_words(mode: Mode, tier: TierName | None) -> str:
    """``on s3k1d4``, ``off``, ``auto``."""
    return f"on {tier}" if mode is Mode.ON and tier else mode.value


def effect(request: OverrideRequest, scene: Scene, max_s: float | None) -> tuple[str, ...]:
    """What setting this override will do, in sentences."""
    until = scene.now_ms + int(request.length_s * 1000)
    at = f"{clock(until, scene.zone)} {zone_name(until, scene.zone)}"
    what = {
        Mode.ON: f"every rank runs {request.tier or 'the last speculating tier'}",
        Mode.OFF: "every rank runs off: no speculation",
        Mode.AUTO: "the engine switches by its own thresholds",
    }[request.mode]
    if request.guards is Guards.KEEP:
        guards = "KV and retraction guards may still turn speculation off"
    else:
        guards = "guards are suspended: KV pressure will not turn speculation off"
    found = [f"{what} until {at} ({length(request.length_s)})", f"then {_after(scene)}", guards]
    in_force = None if scene.board.tick is None else scene.board.tick.override
    if in_force is not None:
        found.append(f"replaces the override of {in_force.author} that is in force")
    if max_s is not None and request.length_s > max_s:
        found.append(f"longer than this control plane allows ({length(max_s)})")
    return tuple(found)


def sent(method: str, engine_id: str, path: str, body: Frozen, if_match: str = "") -> str:
    """The call as it goes out: ``PUT /v1/engines/h200-0/override {…}``.

    Args:
        if_match: the ETag that it goes out with.
    """
    return called(method, f"/v1/engines/{engine_id}/{path}", body, if_match)


def called(method: str, path: str, body: Frozen, if_match: str = "") -> str:
    """The same for any path."""
    text = json.dumps(body.model_dump(mode="json"), ensure_ascii=False)
    tag = f"\nIf-Match: {if_match}" if if_match else ""
    return f"{method} {path} {text}{tag}"


def extend_effect(request: ExtendRequest, override: Override, scene: Scene) -> tuple[str, ...]:
    """Old and new end of the override."""
    before = clock(override.expires_utc_ms, scene.zone)
    later = override.expires_utc_ms + int(request.extra_s * 1000)
    after = f"{clock(later, scene.zone)} {zone_name(later, scene.zone)}"
    what = mode_words(override.mode, override.tier)
    return (
        f"{what} by {override.author} ends at {before} as it stands",
        f"with {length(request.extra_s)} more it ends at {after}",
    )


def release_effect(override: Override, scene: Scene) -> tuple[str, ...]:
    """What ends, and who decides next."""
    left = countdown(override_left_s(scene))
    what = mode_words(override.mode, override.tier)
    return (f"{what} by {override.author} ends now instead of in {left}", f"then {_after(scene)}")


def _after(scene: Scene) -> str:
    """Who decides when no override is in force."""
    stance = Stance.ACTIVE if scene.board.tick is None else scene.board.tick.stance
    return {
        Stance.ACTIVE: "automation decides again",
        Stance.SHADOW: "nothing is commanded: automation is in shadow",
        Stance.PAUSED: "nothing is commanded: automation is paused",
    }[stance]


def stance_effect(stance: Stance) -> tuple[str, ...]:
    """What the stance means."""
    return {
        Stance.ACTIVE: ("automation decides and commands",),
        Stance.SHADOW: ("automation computes and records, and commands nothing",),
        Stance.PAUSED: ("automation rests; an engine keeps what it runs until its lease ends",),
    }[stance]
