"""What the palette offers: everything that is possible now, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from console.formatting import clean
from console.places import PLACES

if TYPE_CHECKING:
    from console.app import Console

ACTIONS = (
    ("override", "Override", "Set an operator's mode with reason and expiry", ""),
    ("extend", "Extend the override", "Give it more time", ""),
    ("release", "Release the override", "End it now", ""),
    ("pin", "Pin a tier for evaluation", "Hold one tier while something is measured", ""),
    ("stance", "Automation: active", "It decides and commands", "('active')"),
    ("stance", "Automation: shadow", "It computes and records only", "('shadow')"),
    ("stance", "Automation: paused", "It rests", "('paused')"),
    ("stances", "Automation of all engines: pause", "It rests everywhere", "('pause')"),
    ("stances", "Automation of all engines: resume", "As before the pause", "('resume')"),
    ("stances", "Automation of all engines: shadow", "It only computes", "('shadow')"),
    ("stances", "Automation of all engines: active", "It decides everywhere", "('active')"),
    ("thresholds", "Thresholds", "Edit those of the policy in force", ""),
    ("rollback", "Roll back the policy", "Go back to an earlier version", ""),
    ("freeze", "Freeze or go on", "Hold the picture, not the loop", ""),
)
"""(action, title, words, arguments)."""


def offers(app: Console) -> Iterator[SystemCommand]:
    """The commands of the frame."""
    for action, title, words, argument in ACTIONS:
        if not app.refusal(action):
            yield SystemCommand(title, words, _runner(app, f"{action}{argument}"))
    for action, title, words in (
        ("copy", "Copy", "The selected row as text"),
        ("export", "Export", "The window as CSV or JSON lines"),
        ("link", "Copy a link to this moment", "For specdeck open"),
    ):
        yield SystemCommand(title, words, _runner(app, action))
    for entry in PLACES:
        if entry.id != app.current_mode:
            yield SystemCommand(
                f"Screen {entry.name}", entry.words, _runner(app, f"place('{entry.id}')")
            )
    shown = None if app.board is None else app.board.engine_id
    names = {row.engine_id: row.name for row in app.looked.rows} or {
        status.engine.engine_id: status.engine.name for status in app.engines
    }
    for engine_id, name in names.items():
        if engine_id != shown:
            # The palette reads titles as markup: brackets would vanish.
            title = clean(name or engine_id)
            title = title.translate({ord("["): "(", ord("]"): ")", ord("\\"): "/"})
            yield SystemCommand(f"Engine {title}", "Show this engine", _follower(app, engine_id))
    yield SystemCommand("Help", "Keys, thresholds, signs", app.action_help)


def _runner(app: Console, action: str) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await app.run_action(action, app)

    return run


def _follower(app: Console, engine_id: str) -> Callable[[], None]:
    return lambda: app.follow(engine_id)
