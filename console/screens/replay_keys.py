"""The keys of the replay screen."""

from __future__ import annotations

from textual.binding import Binding


def _jump(key: str, mark: str, name: str, shown: str = "") -> tuple[Binding, Binding]:
    """The next mark of a kind and, with the other key of ``key``, the last one."""
    on, back = key.split(",")
    return (
        Binding(
            on,
            f"jump('{mark}')",
            name,
            bool(shown),
            shown or None,
            id=f"replay.{mark}",
            tooltip=f"The next {name.lower()}",
        ),
        Binding(
            back,
            f"jump('{mark}', True)",
            f"Last {name.lower()}",
            False,
            id=f"replay.{mark}_back",
            tooltip=f"The {name.lower()} before",
        ),
    )


def _quiet(key: str, action: str, words: str, name: str) -> Binding:
    return Binding(key, action, words, False, id=f"replay.{name}")


ACTING = (
    ("m", "override", "Override"),
    ("x", "release", "Release an override"),
    ("e", "extend", "Extend an override"),
    ("t", "thresholds", "Edit thresholds"),
    ("b", "rollback", "Roll back a policy"),
)
"""What acts on an engine in live does nothing in a replay, and says so."""


def _refused(key: str, name: str, words: str) -> Binding:
    return Binding(key, f"refused('{name}')", f"Not in a replay: {words}", False, id=name)


REPLAY_KEYS = (
    Binding("space", "play", "Play", id="replay.play", tooltip="Play, or pause"),
    Binding("right", "step(1)", "Step", True, "←→", id="replay.step", tooltip="One observation on"),
    _quiet("left", "step(-1)", "One observation back", "step_back"),
    *_jump("right_square_bracket,left_square_bracket", "decision", "Decision", "[]"),
    Binding("g", "goto", "Goto", id="replay.goto", tooltip="Go to a time or an observation"),
    Binding(
        "plus,equals_sign", "speed(1)", "Speed", True, "-+", id="replay.faster", tooltip="Faster"
    ),
    _quiet("minus", "speed(-1)", "Slower", "slower"),
    Binding("w", "what_if", "What-if", id="replay.what_if", tooltip="Ask about another policy"),
    Binding("v", "verify", "Verify", id="replay.verify", tooltip="Run the recorded policy again"),
    _quiet("full_stop,shift+right", "skip(60)", "A minute on", "minute"),
    _quiet("comma,shift+left", "skip(-60)", "A minute back", "minute_back"),
    _quiet("home", "end(False)", "The beginning", "first"),
    _quiet("end", "end(True)", "The end", "last"),
    *_jump("n,N", "difference", "Difference"),
    *_jump("k,K", "marker", "Marker"),
    *_jump("a,A", "alarm", "Alarm"),
    _quiet("i", "all", "The whole what-if", "all"),
    _quiet("W", "clear", "Take the what-if away", "clear"),
    _quiet("E", "save", "Save the what-if's policy as a file", "save"),
    _quiet("tab", "pane", "What-if or decisions, where there is room for one", "pane"),
    Binding("y", "copy", "Copy", False, id="copy", tooltip="Copy what is selected"),
    *(_refused(*one) for one in ACTING),
    Binding("question_mark", "help", "Help", id="help", tooltip="This page"),
    Binding("q,escape", "leave", "Back", id="replay.back", tooltip="Leave this recording"),
)
