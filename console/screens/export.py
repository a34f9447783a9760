"""Exporting what is on the screen into a file."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel
from textual.widget import Widget
from textual.widgets import Input

from console.export import Form, written
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.durations import parse_duration

MOST_TICKS = 10_000
MOST_ROWS = 10_000
LATE_MOST = 2000
"""Ticks that can be read up to a moment of the past."""


class What(StrEnum):
    """What is exported."""

    TICKS = "ticks"
    DECISIONS = "decisions"
    FLEET = "fleet"
    AUDIT = "audit"


class Export(Dialog):
    """Writes a file here, or sends it to the browser; sends nothing to the control plane."""

    heading = "Export"
    act = "Write"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        what: What,
    ) -> None:
        super().__init__(client, present, author)
        self._what = what
        self._shown = present()
        self.written = ""
        """Where it was written, once it was."""

    def fields(self) -> list[tuple[str, Widget]]:
        """What, how, how far back, where to."""
        forms = [form.value for form in Form]
        return [
            ("what", self.choice([one.value for one in What], self._what.value, "what")),
            ("form", self.choice(forms, Form.CSV.value, "form")),
            ("window", Input("2m", id="window", compact=True, max_length=12)),
            ("file", Input(self._default(), id="file", compact=True, max_length=300)),
        ]

    def _default(self) -> str:
        seen = self._shown.board.tick
        seq = "" if seen is None else f"-{seen.observation.seq}"
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.engine_id)
        return f"specdeck-{safe}{seq}"

    @property
    def target(self) -> Path:
        """The file, with its ending.

        Raises:
            Incomplete: no name was given.
        """
        name = self.value("file").strip()
        if not name:
            raise Incomplete("write a file name")
        path = Path(name).expanduser()
        ending = f".{self.value('form')}"
        return path if path.suffix == ending else path.with_name(path.name + ending)

    def _window_s(self) -> float:
        try:
            return parse_duration(self.value("window"))
        except ValueError as error:
            raise Incomplete(str(error)) from None

    def effect(self) -> tuple[str, ...]:
        """What is read, and where it goes."""
        what = What(self.value("what"))
        self.query_one("#row-window").display = what is What.TICKS
        words = {
            What.TICKS: "every tick of the window, gaps included",
            What.DECISIONS: "the newest decisions of this engine",
            What.FLEET: "one row per engine, as last read",
            What.AUDIT: "the newest audit rows",
        }[what]
        to = "the browser saves" if self.app.is_web else "writes"
        self._window_s()
        return (f"{to} {self.target}: {words}", "no token or key is part of it")

    def sends(self) -> str:
        """The call that reads it."""
        base = f"GET /v1/engines/{self.engine_id}"
        self._window_s()
        return {
            What.TICKS: f"{base}/ticks",
            What.DECISIONS: f"{base}/decisions",
            What.FLEET: "GET /v1/fleet",
            What.AUDIT: "GET /v1/audit",
        }[What(self.value("what"))]

    async def send(self) -> None:
        """Read it and write the file; an existing one is not overwritten."""
        text = written(await self._records(), Form(self.value("form")))
        path = self.target
        if self.app.is_web:
            self.app.deliver_text(io.StringIO(text), save_filename=path.name)
            self.written = path.name
            return
        try:
            await asyncio.to_thread(_write_new, path, text)
        except FileExistsError:
            raise ControlPlaneError(f"{path} exists: write another name") from None
        except OSError as error:
            raise ControlPlaneError(f"{path} cannot be written: {error.strerror}") from None
        self.written = str(path)

    async def _records(self) -> Sequence[BaseModel]:
        match What(self.value("what")):
            case What.TICKS:
                return await self._ticks()
            case What.DECISIONS:
                return await self.client.decisions(self.engine_id, MOST_ROWS)
            case What.AUDIT:
                return await self.client.audit(MOST_ROWS)
            case What.FLEET:
                return (await self.client.fleet()).rows

    async def _ticks(self) -> Sequence[BaseModel]:
        shown, window_s = self._shown, self._window_s()
        count = max(math.ceil(window_s / shown.board.poll_s) + 1, 1)
        tick = shown.board.tick
        if (shown.frozen or shown.past) and tick is not None:
            # The window that is looked at ends where the picture was held.
            seq = tick.observation.seq
            ticks = await self.client.moment(self.engine_id, seq, min(count, LATE_MOST))
        else:
            ticks = await self.client.ticks(self.engine_id, min(count, MOST_TICKS))
        if not ticks:
            return ()
        end = ticks[-1].observation.at_utc_ms
        return [one for one in ticks if one.observation.at_utc_ms >= end - window_s * 1000]


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        file.write(text)
