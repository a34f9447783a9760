"""What was asked for is settled only by what the engine reports."""

from __future__ import annotations

import pytest

from console.asked import Ask, settled, settled_words, waiting_words
from engine_patch.contract_words import Mode
from store.policies import Stance
from tests.console_fleet_story import row
from tests.console_story import DEEP, ENGINE, OFF, decision, override, sample, tick

HELD = override().model_copy(update={"mode": Mode.OFF, "tier": None})


def ask(**wanted: object) -> Ask:
    """A request made at 1000 ms."""
    return Ask(ENGINE, "override off for 10m", 1000, **wanted)  # type: ignore[arg-type]


def test_an_override_is_settled_when_it_runs_and_nothing_is_pending() -> None:
    off = ask(mode=Mode.OFF)
    assert not settled(off, tick(sample(1), DEEP, override=HELD))
    assert not settled(off, tick(sample(1, OFF), OFF))
    pending = decision(1, DEEP, OFF)
    assert not settled(off, tick(sample(1, OFF), OFF, override=HELD, pending=pending))
    assert settled(off, tick(sample(1, OFF), OFF, override=HELD))
    on = ask(mode=Mode.ON, tier=DEEP)
    assert settled(on, tick(sample(1), DEEP, override=HELD))
    assert not settled(on, tick(sample(1, "s1k1d2"), "s1k1d2", override=HELD))
    any_on = ask(mode=Mode.ON)
    assert settled(any_on, tick(sample(1, "s1k1d2"), "s1k1d2", override=HELD))
    auto = ask(mode=Mode.AUTO)
    assert settled(auto, tick(sample(1, mode=Mode.AUTO), DEEP, override=HELD))
    assert not settled(auto, tick(sample(1), DEEP, override=HELD))


def test_release_stance_and_version_are_settled_by_the_next_tick_that_shows_them() -> None:
    assert settled(ask(released=True), tick(sample(1)))
    assert not settled(ask(released=True), tick(sample(1), override=HELD))
    assert settled(ask(stance=Stance.PAUSED), tick(sample(1), stance=Stance.PAUSED))
    assert not settled(ask(stance=Stance.PAUSED), tick(sample(1)))
    assert settled(ask(version=3), tick(sample(1)))
    assert not settled(ask(version=4), tick(sample(1)))


@pytest.mark.parametrize(
    ("wanted", "changes", "done"),
    [
        ({"stance": Stance.PAUSED}, {"stance": Stance.PAUSED}, True),
        ({"stance": Stance.PAUSED}, {}, False),
        ({"released": True}, {}, True),
        ({"released": True}, {"override_by": "op1"}, False),
        ({"mode": Mode.OFF}, {"override_by": "op1", "confirmed": OFF}, True),
        ({"mode": Mode.OFF}, {"override_by": "op1"}, False),
        ({"mode": Mode.OFF}, {"confirmed": OFF}, False),
    ],
)
def test_an_engine_that_is_not_shown_is_settled_by_its_row(
    wanted: dict[str, object], changes: dict[str, object], done: bool
) -> None:
    assert settled(ask(**wanted), row(ENGINE, **changes)) is done


def test_the_words_say_how_long_and_what_runs() -> None:
    assert waiting_words(ask(), DEEP, 3100) == (
        "asked 2.1s ago on h200-0, not confirmed yet: override off for 10m; the engine runs s3k1d4"
    )
    assert settled_words(ask(), 1400) == "h200-0 confirmed after 0.4s: override off for 10m"
