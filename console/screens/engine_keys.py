"""The keys that act on the shown engine, the same on every screen of one engine."""

from __future__ import annotations

from textual.binding import Binding


def engine_keys(shown: bool = True) -> tuple[Binding, ...]:
    """The bindings.

    Args:
        shown: whether the bar shows them; screens with keys of their own leave it to the help.
    """
    return (
        Binding(
            "m", "app.override", "Override", shown, id="override", tooltip="Set a mode for a time"
        ),
        Binding("x", "app.release", "Release", shown, id="release", tooltip="End the override now"),
        Binding(
            "e", "app.extend", "Extend", shown, id="extend", tooltip="Give the override more time"
        ),
        Binding(
            "p",
            "app.freeze",
            "Freeze",
            shown,
            id="freeze",
            tooltip="Hold the picture, not the loop",
        ),
        Binding(
            "a",
            "app.stance",
            "Automation: active, shadow or paused",
            id="stance",
            show=False,
        ),
        Binding("left_square_bracket", "app.engine(-1)", "Previous engine", False, id="previous"),
        Binding("right_square_bracket", "app.engine(1)", "Next engine", False, id="next"),
    )


ENGINE_KEYS = engine_keys()
QUIET_KEYS = engine_keys(shown=False)
