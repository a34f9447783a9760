"""One engine of the list: how old its numbers are, its mode, what is wrong with it.  Pure."""

from __future__ import annotations

from console.formatting import MISSING, countdown, seconds
from console.scene import STALE_POLLS, Scene
from console.spans import Role
from controlplane.messages import FleetRow
from engine_patch.tier import OFF
from store.observations import PluginStatus
from store.policies import Stance


def age_s(scene: Scene, row: FleetRow) -> float | None:
    """Seconds since the engine's newest fresh sample, at the scene's moment."""
    fleet = scene.looked.fleet
    if row.age_s is None or fleet.value is None:
        return None
    return row.age_s + max(scene.now_ms - fleet.value.now_utc_ms, 0) / 1000


def stale(scene: Scene, row: FleetRow) -> bool:
    """Whether the row's numbers are the last known ones only."""
    age = age_s(scene, row)
    return age is None or age > STALE_POLLS * row.poll_s + 0.5


def mode_sign(scene: Scene, row: FleetRow) -> tuple[str, Role]:
    """The confirmed tier with its shape; what was asked for beside it until it is confirmed."""
    glyphs = scene.glyphs
    speculating = [tier for tier in row.tiers if tier != OFF]
    tier = row.confirmed
    if tier is None:
        word = f"{glyphs.unknown} {row.desired or MISSING}"
        return (word if not row.gap else f"{glyphs.unknown} unseen"), Role.WARNING
    if row.asked is not None and row.asked != tier:
        return f"{tier}{glyphs.arrow}{row.asked}", Role.WARNING
    if tier == OFF:
        return f"{glyphs.off} {tier}", Role.OFF
    if speculating and tier != speculating[0]:
        return f"{glyphs.middle} {tier}", Role.MIDDLE
    return f"{glyphs.on} {tier}", Role.ON


def wrong(scene: Scene, row: FleetRow) -> tuple[str, Role]:
    """What a person must know of this engine, worst first; "" if there is nothing."""
    mark = scene.glyphs.alarm
    if row.alarms:
        more = f" (+{len(row.alarms) - 1})" if len(row.alarms) > 1 else ""
        return f"{mark} {row.alarms[0].text}{more}", Role.ALARM
    if row.gap:
        age = age_s(scene, row)
        return f"{mark} STALE {seconds(age)}: {row.gap}", Role.ALARM
    if row.plugin not in (None, PluginStatus.PRESENT):
        return f"{mark} plugin {row.plugin.value}: observed only", Role.WARNING
    if stale(scene, row):
        age = age_s(scene, row)
        return f"{mark} STALE {seconds(age)}" if age is not None else "no data yet", Role.WARNING
    if row.override_by:
        left = row.override_left_s
        fleet = scene.looked.fleet.value
        if left is not None and fleet is not None:
            left = max(left - max(scene.now_ms - fleet.now_utc_ms, 0) / 1000, 0)
        # Not as 03:41, which reads as a time of day where nothing stands beside it.
        ends = MISSING if left is None else seconds(left)
        return f"OVERRIDE {ends} {scene.glyphs.dot} {row.override_by}", Role.WARNING
    if row.stance in (Stance.PAUSED, Stance.SHADOW):
        return f"{row.stance.value.upper()} {row.text}", Role.WARNING
    if row.warnings:
        return f"{mark} {row.warnings[0]}", Role.WARNING
    return "", Role.TEXT


def wrong_override(row: FleetRow) -> str:
    """``by op1, 03:41 left``; "none" without one."""
    if not row.override_by:
        return "none"
    return f"by {row.override_by}, {countdown(row.override_left_s)} left"
