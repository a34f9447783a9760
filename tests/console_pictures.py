"""Named pictures of the console over the told story: for snapshots and for ``docs/console.md``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

from console.app import Console, Options
from console.clock import Clock
from console.messages import (
    EvidenceArrived,
    HistoryArrived,
    LinkChanged,
    LookedUp,
    StatusArrived,
)
from console.places import Need
from console.scene import Link, LinkState
from controlplane.client import ControlPlaneClient
from controlplane.messages import About, EngineStatus
from engine_patch.contract_words import Mode, OffKind
from store.observations import PluginStatus, RankTier, Source
from store.policies import Stance
from store.records import Outcome, Reason, Tick, Verdict
from tests.console_fleet_story import looked
from tests.console_story import (
    DEEP,
    ENGINE,
    NARROW,
    OFF,
    START_MS,
    alarm,
    decision,
    facts,
    gap,
    override,
    past,
    sample,
    status,
    story,
    tick,
    tier_info,
)
from tests.frames import frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

NOW_MS = START_MS + 120_300


class StillClock(Clock):
    """A clock that stands at the story's end unless it is moved."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        super().__init__()
        self.at_ms = now_ms

    def now_ms(self) -> int:
        """Where it stands."""
        return self.at_ms


class ToldConsole(Console):
    """The console without a connection: messages are posted by hand."""

    def start_feed(self, engine_id: str) -> None:
        """Nobody is asked."""

    def start_asker(self) -> None:
        """Nobody is asked."""

    async def read_evidence(self, engine_id: str, seq: int) -> None:
        """The story knows its own observations."""
        told = [one for one in story() if one.observation.seq == seq]
        self.post_message(EvidenceArrived(engine_id, seq, told[0] if told else None))


@dataclass(frozen=True)
class Picture:
    """One picture.

    Args:
        shows: what it shows, for the documentation; "" keeps it out of there.
        keys: pressed one after another; ``text:…`` is typed into what has the focus.
    """

    name: str
    shows: str = ""
    size: tuple[int, int] = (80, 24)
    ticks: Callable[[], Sequence[Tick]] = story
    engines: Callable[[], Sequence[EngineStatus]] = lambda: (status(),)
    link: Link = field(default_factory=lambda: Link(LinkState.LIVE))
    keys: tuple[str, ...] = ()
    looked: Callable[[], dict[Need, object]] = dict
    now_ms: int = NOW_MS
    options: dict[str, Any] = field(default_factory=dict)


def about(**changes: Any) -> About:
    """A control plane that allows everything."""
    known = {
        "version": "0.1.0",
        "now_utc_ms": NOW_MS,
        "holder": "specdeck@ops1",
        "may_operate": True,
        "override_max_s": 86400.0,
    }
    return About(**known | changes)


@asynccontextmanager
async def opened(picture: Picture) -> AsyncIterator[tuple[ToldConsole, Pilot[None]]]:
    """The console as ``picture`` wants it, keys pressed."""
    options = Options(**{"engine_id": ENGINE, "author": "op1", "zone": UTC} | picture.options)
    app = ToldConsole(ControlPlaneClient(), options, StillClock(picture.now_ms))
    async with app.run_test(size=picture.size, notifications=True) as pilot:
        app.post_message(StatusArrived(about(), tuple(picture.engines())))
        app.post_message(LinkChanged(picture.link))
        app.post_message(HistoryArrived(ENGINE, tuple(picture.ticks()), tuple(past()), ()))
        for need, value in picture.looked().items():
            app.post_message(LookedUp(need, ENGINE, value))
        await pilot.pause()
        for key in picture.keys:
            if key.startswith("text:"):
                await pilot.press(*key.removeprefix("text:"))
            else:
                await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        yield app, pilot


async def taken(picture: Picture) -> str:
    """The picture as text."""
    async with opened(picture) as (app, pilot):
        await pilot.pause()
        return frame(app)


async def key_table() -> str:
    """Every key of the live screen, as a Markdown table."""
    async with opened(BY_NAME["several"]) as (app, _):
        rows = [f"| `{_name(key)}` | {words} |\n" for key, words, _ in app.key_rows()]
    return "| Key | Does |\n|---|---|\n" + "".join(rows)


def _name(key: str) -> str:
    """A key as documentation writes it."""
    written = {"↑": "up", "↓": "down", "⏎": "enter", "esc": "esc` `home"}.get(key, key)
    return f"ctrl+{written[1:]}" if written.startswith("^") and len(written) > 1 else written


def _last(told: list[Tick], **changes: Any) -> list[Tick]:
    """The story with another last tick."""
    return [*told[:-1], told[-1].model_copy(update=changes)]


def _overridden() -> list[Tick]:
    words = 'override "load test" by op1: on s3k1d4'
    said = Verdict(
        tier=None,
        reason=Reason.OVERRIDE,
        text=words,
        outlook=story(0.0)[0].verdict.outlook,
    )
    return _last(story(), override=override(), override_left_s=221.0, verdict=said)


def _unsettled() -> list[Tick]:
    asked = decision(
        119.6, DEEP, OFF, outcome=Outcome.REQUESTED, latency_ms=None, settled_utc_ms=None
    )
    return _last(story(), desired=OFF, pending=asked, decisions=(asked,), tier_age_s=None)


def _disagreeing() -> list[Tick]:
    ranks = (
        RankTier(dp_rank=0, tp_rank=0, tier=OFF, epoch=1, generation=38),
        RankTier(dp_rank=0, tp_rank=1, tier=DEEP, epoch=1, generation=37),
    )
    said = Verdict(tier=None, reason=Reason.DISAGREE, text="ranks report different tiers")
    return [
        *story()[:-1],
        tick(
            sample(120, applied=ranks, engine_tier=None),
            None,
            desired=OFF,
            stance=Stance.SHADOW,
            verdict=said,
            tier_age_s=None,
            alarms=(alarm("disagree", "automation stopped: off on rank 0, s3k1d4 on rank 1"),),
        ),
    ]


def _gone() -> list[Tick]:
    said = Verdict(
        tier=None,
        reason=Reason.GAP,
        text="no answer for 4.5 s: desired mode kept",
    )
    told = story(116.0)
    for half in range(233, 241):
        second = half / 2
        told.append(tick(gap(second), None, desired=DEEP, stale_s=second - 116, verdict=said))
    return told


def _unpatched() -> list[Tick]:
    bare: dict[str, Any] = {
        "source": Source.METRICS,
        "boot_id": None,
        "applied": (),
        "engine_tier": None,
        "mode": None,
        "lease_remaining_s": None,
    }
    said = Verdict(tier=None, reason=Reason.READ_ONLY, text="the plugin is absent: observing only")
    return [
        tick(sample(half / 2, **bare), None, verdict=said, tier_age_s=None, desired=None)
        for half in range(241)
    ]


def _unpatched_engine() -> list[EngineStatus]:
    absent = facts(plugin=PluginStatus.ABSENT, tiers=(), off_kind=None, boot_id=None)
    return [status(known=absent)]


def _simulated_engine() -> list[EngineStatus]:
    simulated = facts(simulated=True, simulation_table="h200-8b-triton")
    return [status(known=simulated)]


def _shadow() -> list[Tick]:
    wish = decision(
        110, DEEP, NARROW, outcome=Outcome.SHADOW, latency_ms=None, settled_utc_ms=None, attempts=0
    )
    words = ("not measured for this setup: automation only watches, run specdeck bench",)
    told = [one.model_copy(update={"stance": Stance.SHADOW}) for one in story()]
    return _last(told, decisions=(wish,), warnings=words)


def _off() -> list[Tick]:
    worse = "one-token verify on triton attention: 0.25 to 0.31 of a plain server's tokens/s"
    return [
        tick(
            sample(half / 2, OFF, mode=Mode.OFF),
            OFF,
            tier_age_s=60.0 + half / 2,
            warnings=(worse,),
        )
        for half in range(241)
    ]


def _verify_engine() -> list[EngineStatus]:
    kind = OffKind.ONE_TOKEN_VERIFY
    tiers = tuple(tier_info(name, kind) for name in (DEEP, NARROW, OFF))
    return [status(known=facts(tiers=tiers, off_kind=kind))]


_LOST = Link(
    LinkState.LOST,
    "no control plane answers at http://127.0.0.1:7311: start one with 'specdeck serve', or give "
    "its address with --url",
    NOW_MS + 6_000 + 3_200,
)

PICTURES: tuple[Picture, ...] = (
    Picture("live-80x24", "The live screen at 80x24"),
    Picture("live-120x40", "The live screen at 120x40", size=(120, 40)),
    Picture("live-100x30", size=(100, 30)),
    Picture("live-160x50", size=(160, 50)),
    Picture("live-60x16", "The live screen at 60x16", size=(60, 16)),
    Picture("live-80x18", size=(80, 18)),
    Picture("essentials-50x12", "Under 60x16: mode, why and age", size=(50, 12)),
    Picture("live-ascii-80x24", "`--ascii`", options={"ascii": True}),
    Picture("live-no-color-80x24", options={"no_color": True}),
    Picture("starting", ticks=lambda: (), link=Link(LinkState.CONNECTING)),
    Picture(
        "override-dialog",
        "`m`: setting an override",
        keys=("m", "tab", "tab", "right", "right", "tab", "tab", "tab", "text:load test"),
    ),
    Picture(
        "override-dialog-ascii",
        keys=("m", "tab", "tab", "right", "right", "tab", "tab", "tab", "text:load test"),
        options={"ascii": True},
    ),
    Picture("override-dialog-60x16", size=(60, 16), keys=("m",)),
    Picture("override-in-force", "An override in force", ticks=_overridden),
    Picture("extend-dialog", "`e`: giving it more time", ticks=_overridden, keys=("e",)),
    Picture("release-dialog", "`x`: ending it", ticks=_overridden, keys=("x",)),
    Picture(
        "stance-dialog",
        "`a`: whether automation acts",
        keys=("a",),
    ),
    Picture("unsettled", "Asked, and not confirmed yet", ticks=_unsettled),
    Picture("disagreeing", "Ranks that differ", ticks=_disagreeing),
    Picture("stale", "An engine that does not answer", ticks=_gone),
    Picture(
        "lost",
        "A control plane that does not answer",
        link=_LOST,
        now_ms=NOW_MS + 6_000,
    ),
    Picture("frozen", "`p`: the screen held", keys=("p",)),
    Picture("shadow", "Automation in shadow", ticks=_shadow),
    Picture(
        "unpatched", "An engine without the plugin", ticks=_unpatched, engines=_unpatched_engine
    ),
    Picture("simulated", "An engine with simulated times", engines=_simulated_engine),
    Picture("off-verify", ticks=_off, engines=_verify_engine),
    Picture(
        "several",
        engines=lambda: (status(), status("h200-1"), status("b200-0")),
    ),
    Picture("why", "`enter`: one decision", keys=("down", "down", "enter")),
    Picture("help", "`?`: help", keys=("question_mark",), size=(80, 60)),
    Picture("help-ascii-80x24", keys=("question_mark",), options={"ascii": True}),
    Picture("palette", "`ctrl+p`: everything that is possible now", keys=("ctrl+p",)),
    Picture("palette-ascii", keys=("ctrl+p",), options={"ascii": True}),
    Picture("readonly", "`--readonly`", options={"readonly": True}, keys=("m",)),
)
SIZES = ((60, 16), (80, 24), (120, 40))
"""At which every screen is held to its snapshots."""
PLACE_KEYS = {
    "fleet": ("1",),
    "decisions": ("3", "down"),
    "tiers": ("4",),
    "kv": ("5",),
    "audit": ("6",),
}
SHOWN = {
    "fleet": "`1`: every engine in a row",
    "decisions": "`3`: decisions, explained",
    "tiers": "`4`: tiers and thresholds",
    "kv": "`5`: KV slots",
    "audit": "`6`: the audit",
}


def _frame_pictures() -> tuple[Picture, ...]:
    """Every screen of the frame, for the documentation."""
    return tuple(
        Picture(f"{name}-80x24", SHOWN[name], keys=keys, looked=looked)
        for name, keys in PLACE_KEYS.items()
    )


TWENTY = ("down", "down", "down", "backspace", "backspace", "text:20")
PICTURES = (
    *PICTURES,
    *_frame_pictures(),
    Picture("fleet-groups", "`g`: under their groups", keys=("1", "g"), looked=looked),
    Picture("fleet-160x20", size=(160, 20), keys=("1", "down"), looked=looked),
    Picture("fleet-filter", keys=("1", "slash", "text:alarm"), looked=looked),
    Picture("fleet-unread", keys=("1",)),
    Picture("decisions-unread", keys=("3",), ticks=lambda: ()),
    Picture("tiers-unread", keys=("4",)),
    Picture("tiers-context", keys=("4", "c"), looked=looked),
    Picture("kv-unpatched", keys=("5",), ticks=_unpatched, engines=_unpatched_engine),
    Picture("kv-stale", keys=("5",), ticks=_gone),
    Picture("stances-dialog", "`A`: automation of all engines", keys=("1", "A"), looked=looked),
    Picture(
        "thresholds-dialog", "`t`: editing thresholds", keys=("4", "t", *TWENTY), looked=looked
    ),
    Picture("thresholds-dialog-60x16", size=(60, 16), keys=("4", "t"), looked=looked),
    Picture("rollback-dialog", keys=("4", "b"), size=(80, 40), looked=looked),
    Picture("pin-dialog", "`i`: pinning a tier", keys=("4", "i"), looked=looked),
    Picture("help-tiers", keys=("4", "question_mark"), size=(80, 60), looked=looked),
    Picture("live-high-contrast", options={"theme": "specdeck-contrast"}),
)
BY_NAME = {picture.name: picture for picture in PICTURES}
