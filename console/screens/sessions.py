"""The sessions screen: what the control plane recorded under a name, to replay it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from console.replay_process import ReplayError, ReplayProcess
from console.scene import Scene
from console.screens.place_keys import PLACE_KEYS
from console.screens.replay import Replay
from console.session_rows import SessionsBoard
from console.widgets.header import Header
from console.widgets.key_bar import KeyBar
from console.widgets.row_list import RowList
from console.widgets.session_list import SessionList
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.sessions_messages import SessionInfo

LIST_EVERY_S = 5.0


class SessionsListed(Message):
    """Every session, or why they could not be read."""

    def __init__(self, sessions: tuple[SessionInfo, ...] | None, trouble: str = "") -> None:
        super().__init__()
        self.sessions = sessions
        self.trouble = trouble


class SessionOpened(Message):
    """A session can be replayed, or why not."""

    def __init__(self, opened: OpenedSession | None, trouble: str = "") -> None:
        super().__init__()
        self.opened = opened
        self.trouble = trouble


class OpenedSession:
    """A session as a private file here, and the process that replays it.

    Args:
        folder: holds the file; goes with it.
    """

    def __init__(self, folder: tempfile.TemporaryDirectory[str], process: ReplayProcess) -> None:
        self._folder = folder
        self._process = process

    @property
    def url(self) -> str:
        """Where the replay answers."""
        return self._process.url

    async def close(self) -> None:
        """End the process and remove the file."""
        await self._process.stop()
        await asyncio.to_thread(self._folder.cleanup)


class Sessions(Screen[None]):
    """Shows the list; the messages of its workers are the only thing that changes it.

    Args:
        present: the scene now, for header, signs and zone.
    """

    DEFAULT_CSS = """
    Sessions { layout: vertical; }
    Sessions #sessions { height: 1fr; width: 100%; }
    """
    AUTO_FOCUS = "SessionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        *PLACE_KEYS,
        Binding("escape", "leave", "Back", id="sessions.back", tooltip="Back to the live screen"),
    ]

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,  # noqa: ARG002  (as every screen that is laid over the frame's)
    ) -> None:
        super().__init__()
        self._client = client
        self._present = present
        self.board = SessionsBoard()

    def compose(self) -> ComposeResult:
        """Header, list, keys."""
        yield Header(id="header")
        yield SessionList(id="sessions")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begin to read."""
        self.set_interval(1.0, self.redraw)
        self.start_feed()
        self.redraw()

    def start_feed(self) -> None:
        """Read the list, again and again."""
        self.run_worker(self._follow(), group="sessions", exclusive=True)

    async def _follow(self) -> None:
        while True:
            try:
                found = tuple(await self._client.sessions())
            except ControlPlaneError as error:
                self.post_message(SessionsListed(None, str(error)))
            else:
                self.post_message(SessionsListed(found))
            await asyncio.sleep(LIST_EVERY_S)

    # State: changed by these handlers alone.

    @on(SessionsListed)
    def _listed(self, message: SessionsListed) -> None:
        sessions = self.board.sessions if message.sessions is None else message.sessions
        self._show(replace(self.board, sessions=sessions, trouble=message.trouble, asked=True))

    @on(RowList.Chosen)
    def _chosen(self, message: RowList.Chosen) -> None:
        message.stop()
        session = self.board.of(message.key)
        if session is None or self.board.opening:
            return
        self._show(replace(self.board, opening=session.name, trouble=""))
        self.run_worker(self._open(session), group="open", exclusive=True)

    @on(SessionOpened)
    def _opened(self, message: SessionOpened) -> None:
        self._show(replace(self.board, opening="", trouble=message.trouble))
        opened = message.opened
        if opened is not None:
            scene = self._present()
            screen = Replay(
                ControlPlaneClient(opened.url),
                zone=scene.zone,
                ascii_only=scene.glyphs.ascii,
                closed=opened.close,
            )
            self.app.push_screen(screen)

    async def _open(self, session: SessionInfo) -> None:
        """Read the whole session and replay it in a process of its own."""
        folder = tempfile.TemporaryDirectory(prefix="specdeck-")
        opened: OpenedSession | None = None
        try:
            file = Path(folder.name) / "session.specdeck"
            body = await self._client.session_file(session.id)
            await asyncio.to_thread(file.write_bytes, body)
            opened = OpenedSession(folder, await ReplayProcess.start(file))
        except (ControlPlaneError, ReplayError) as error:
            self.post_message(SessionOpened(None, str(error)))
        except OSError as error:
            self.post_message(SessionOpened(None, f"no room for it here: {error.strerror}"))
        else:
            self.post_message(SessionOpened(opened))
        finally:
            if opened is None:
                folder.cleanup()

    def _show(self, board: SessionsBoard) -> None:
        self.board = board
        self.redraw()

    def redraw(self) -> None:
        """Draw the list at the present moment."""
        scene = self._present()
        rows = self.query_one(SessionList)
        rows.board = self.board
        for view in (self.query_one(Header), rows, self.query_one(KeyBar)):
            view.show(scene)

    def action_leave(self) -> None:
        """Back to the live screen."""
        self.dismiss(None)
