"""A scene: everything a screen is drawn from, at one moment.  Pure.

The moment is an argument: ages, counts of time left and staleness are computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum

from console.asked import Ask
from console.board import Board
from console.formatting import UNICODE, Glyphs, seconds
from console.lookups import NOTHING, Lookups
from console.places import FIRST
from console.spans import Role
from engine_patch.tier import OFF, TierName, TierShape

STALE_POLLS = 3
"""Poll periods without a fresh sample after which values are marked stale."""


class LinkState(StrEnum):
    """How the console stands with the control plane."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Link:
    """The connection to the control plane.

    Args:
        reason: why it was lost, in a sentence.
        retry_at_ms: when it is tried again, on the scene's clock.
    """

    state: LinkState = LinkState.CONNECTING
    reason: str = ""
    retry_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known, the moment, and the way of drawing.

    Args:
        now_ms: the control plane's wall clock as the console reckons it, UTC.
        zone: the zone times are shown in, None for this machine's own.
        frozen: whether the picture is held; ``now_ms`` is then the moment it was frozen, and
            ``behind_ms`` and ``missed`` (ticks) say how far it is behind.
        readonly: why nothing may be changed; "" if it may.
        engines: all engines of the control plane, in order.
        place: the screen that is open.
        looked: what was read beside the stream.
        asks: what was asked for and is not confirmed yet.
        past: set while a moment of the past is shown: how it is named.
    """

    board: Board
    now_ms: int
    link: Link = Link(LinkState.LIVE)
    zone: tzinfo | None = None
    glyphs: Glyphs = UNICODE
    frozen: bool = False
    behind_ms: int = 0
    missed: int = 0
    readonly: str = ""
    engines: tuple[str, ...] = ()
    place: str = FIRST
    looked: Lookups = NOTHING
    asks: tuple[Ask, ...] = ()
    past: str = ""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the newest fresh numbers are; ``age_s`` None if there never were any."""

    age_s: float | None
    stale: bool

    @property
    def words(self) -> str:
        """``age 0.3s``, ``STALE 4s`` or ``no data``."""
        if self.age_s is None:
            return "no data"
        return f"STALE {seconds(self.age_s)}" if self.stale else f"age {seconds(self.age_s)}"


def elapsed_s(scene: Scene) -> float:
    """Seconds since the newest tick was made, never negative."""
    tick = scene.board.tick
    return 0.0 if tick is None else max(scene.now_ms - tick.observation.at_utc_ms, 0) / 1000


def freshness(scene: Scene) -> Freshness:
    """The age of the newest fresh sample at the scene's moment."""
    board = scene.board
    if board.tick is None or board.sample is None:
        return Freshness(None, stale=True)
    age_s = max(board.tick.stale_s, 0.0) + elapsed_s(scene)
    return Freshness(age_s, stale=age_s > STALE_POLLS * board.poll_s)


def override_left_s(scene: Scene) -> float | None:
    """Seconds the override in force still has; None without one."""
    tick = scene.board.tick
    if tick is None or tick.override is None:
        return None
    if tick.override_left_s is None:
        return max((tick.override.expires_utc_ms - scene.now_ms) / 1000, 0.0)
    return max(tick.override_left_s - elapsed_s(scene), 0.0)


def tier_sign(scene: Scene, tier: TierName | None) -> tuple[str, Role]:
    """The tier's shape: a triangle for the deepest, a ring for off, a square between."""
    glyphs = scene.glyphs
    if tier is None:
        return glyphs.unknown, Role.WARNING
    if tier == OFF:
        return glyphs.off, Role.OFF
    if tier in scene.board.speculating[1:]:
        return glyphs.middle, Role.MIDDLE
    return glyphs.on, Role.ON


def tier_word(tier: TierName | None) -> str:
    """``ON s3k1d4``, ``OFF`` or ``UNKNOWN``."""
    if tier is None:
        return "UNKNOWN"
    return "OFF" if tier == OFF else f"ON {tier}"


def strip_signs(tiers: tuple[TierName, ...]) -> dict[TierName, str]:
    """One character per tier for the mode strip: its draft steps, or letters where these repeat."""
    steps = [TierShape.parse(tier).num_steps for tier in tiers]
    if len(set(steps)) == len(steps) and all(step <= 9 for step in steps):
        return {tier: str(step) for tier, step in zip(tiers, steps, strict=True)}
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    return {tier: "0" if tier == OFF else next(letters, "?") for tier in tiers}
