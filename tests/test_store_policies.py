"""Windows: times of the week in which automation has another stance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.policy_text import read_window, window_text
from store.policies import DAYS, Stance, Window
from tests.controlplane_script import Script, config
from tests.store_records import a_policy

MONDAY = datetime(2026, 11, 30, tzinfo=UTC)


def at(day: int, clock: str) -> int:
    hour, minute = map(int, clock.split(":"))
    moment = MONDAY + timedelta(days=day, hours=hour, minutes=minute)
    return int(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "day", "clock", "holds"),
    [
        ("daily 02:00-03:00 paused", 0, "02:00", True),
        ("daily 02:00-03:00 paused", 0, "03:00", False),
        ("mon-fri 22:00-06:00 paused", 4, "23:00", True),
        ("mon-fri 22:00-06:00 paused", 5, "05:59", True),
        ("mon-fri 22:00-06:00 paused", 5, "22:30", False),
        ("mon-fri 22:00-06:00 paused", 0, "05:00", False),
        ("sat,sun 00:00-00:00 shadow", 6, "12:00", True),
        ("sat,sun 00:00-00:00 shadow", 7, "00:00", False),
        ("sun-mon 10:00-11:00 shadow", 0, "10:30", True),
    ],
)
def test_a_window_holds_from_its_start_to_its_end(
    window: str, day: int, clock: str, holds: bool
) -> None:
    assert read_window(window).holds(at(day, clock)) is holds


@pytest.mark.parametrize(
    "text", ["", "daily", "daily 1-2 paused", "mon 25:00-26:00 paused", "x 01:00-02:00 paused"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_window(text)


@settings(deadline=None)
@given(st.integers(0, 2**42), st.sets(st.sampled_from(DAYS)), st.integers(0, 1439), st.data())
def test_a_window_agrees_with_the_calendar(
    moment_ms: int, days: set[str], start: int, data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, 1440))
    end = (start + length) % 1440
    window = Window.model_validate(
        {
            "days": sorted(days),
            "start": f"{start // 60:02}:{start % 60:02}",
            "end": f"{end // 60:02}:{end % 60:02}",
            "stance": "paused",
        }
    )
    now = datetime.fromtimestamp(moment_ms / 1000, UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    inside = False
    for back in (0, 1):
        begins = midnight - timedelta(days=back) + timedelta(minutes=start)
        named = not days or DAYS[(midnight - timedelta(days=back)).weekday()] in days
        inside |= named and begins <= now < begins + timedelta(minutes=length)
    assert window.holds(moment_ms) is inside


def test_a_pause_stays_whatever_the_hour_and_the_first_window_counts() -> None:
    windows = (read_window("daily 00:00-12:00 shadow"), read_window("daily 00:00-00:00 paused"))
    active = a_policy().model_copy(update={"stance": Stance.ACTIVE, "windows": windows})
    assert active.stance_at(at(0, "10:00")) is Stance.SHADOW
    assert active.stance_at(at(0, "13:00")) is Stance.PAUSED
    paused = active.model_copy(update={"stance": Stance.PAUSED})
    assert paused.stance_at(at(0, "10:00")) is Stance.PAUSED
    assert window_text(windows[0]) == "daily 00:00-12:00 shadow (UTC)"


def test_the_controller_rests_in_a_window_and_acts_after_it() -> None:
    script = Script()
    script.utc_ms = at(0, "02:59")
    made = config(windows=(read_window("daily 02:00-03:00 shadow"),))
    script.config = made
    script.see(1)
    for _ in range(20):
        script.see(30)
    assert script.commands == []
    assert script.ticks[-1].stance is Stance.SHADOW
    assert script.ticks[-1].desired is None
    script.wait(60_000)
    for _ in range(20):
        script.see(30)
    assert script.ticks[-1].stance is Stance.ACTIVE
    assert script.tier == "off"
