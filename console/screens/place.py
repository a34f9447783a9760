"""The base of every screen of the frame: header, tabs, notices, its own parts, keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from console.header import notices
from console.layout import TABS_FROM
from console.messages import PlaceReady
from console.scene import Scene
from console.screens.place_keys import PLACE_KEYS
from console.spans import Line
from console.widgets.essentials import Essentials
from console.widgets.header import Header
from console.widgets.key_bar import KeyBar
from console.widgets.notices import Notices
from console.widgets.scene_view import SceneView
from console.widgets.still import StillVertical
from console.widgets.tab_row import TabRow


class Place(Screen[None]):
    """Shows scenes; state lives in the app, actions too, so that keys, mouse and palette agree.

    A subclass composes its parts with ``parts`` and arranges them with ``lay_out``; every
    ``SceneView`` among them is shown each scene.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *PLACE_KEYS,
        Binding("y", "app.copy", "Copy", show=False, id="copy", tooltip="Copy what is selected"),
        Binding("E", "app.export", "Export", show=False, id="export", tooltip="CSV or JSON lines"),
        Binding(
            "L",
            "app.link",
            "Link",
            show=False,
            id="link",
            tooltip="Copy a link to this moment, for specdeck open",
        ),
    ]
    essential: ClassVar[bool] = True
    """Whether a very small terminal shows mode, why and age in place of this screen."""

    def __init__(self) -> None:
        super().__init__()
        self._scene: Scene | None = None
        self._views: list[SceneView] = []
        self._placed: tuple[object, ...] = ()

    @property
    def scene(self) -> Scene | None:
        """The scene on display."""
        return self._scene

    @property
    def ready(self) -> bool:
        """Whether its parts are there: a key may come before them."""
        return bool(self._views)

    def check_action(
        self,
        action: str,  # noqa: ARG002  (Textual's signature)
        parameters: tuple[object, ...],  # noqa: ARG002
    ) -> bool | None:
        """Keys of a screen whose parts are not there yet do nothing."""
        return self.ready

    def parts(self) -> Iterable[Widget]:
        """The screen's own widgets, top to bottom."""
        raise NotImplementedError

    def lay_out(self, columns: int, rows: int) -> None:
        """Give the parts their places in ``columns`` by ``rows``; called when either changed."""

    def copied(self) -> str | None:
        """What ``y`` copies: the selected row in full, or the page; None for nothing."""
        return None

    def moment(self) -> int | None:
        """The observation that is selected; None for the newest one."""
        return None

    def point_to(self, seq: int) -> None:
        """Select what belongs to observation ``seq``; nothing by default."""

    def exports(self) -> str:
        """What ``E`` offers first: ticks, decisions, fleet or audit."""
        return "ticks"

    def meant(self) -> tuple[str, ...] | None:
        """The engines that an action on many means; None for all."""
        return None

    def notice_lines(self, scene: Scene, columns: int) -> tuple[Line, ...]:
        """What must be known on this screen."""
        return notices(scene, columns)

    def compose(self) -> ComposeResult:
        """The frame."""
        yield Header(id="header")
        yield TabRow(id="tabs")
        yield Notices(self.notice_lines, id="notices")
        with StillVertical(id="body"):
            yield from self.parts()
        yield Essentials(id="essentials")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Know the parts: they are shown twice a second."""
        self._views = list(self.query(SceneView))
        self.post_message(PlaceReady())

    def show(self, scene: Scene) -> None:
        """Display ``scene`` in all parts."""
        self._scene = scene
        self._fit(scene)
        for view in self._views:
            view.show(scene)

    def on_resize(self) -> None:
        """Another size may show other parts."""
        if self._scene is not None:
            self._fit(self._scene)

    def _fit(self, scene: Scene) -> None:
        columns, rows = self.size
        count = len(self.notice_lines(scene, columns))
        if (columns, rows, count) == self._placed:
            return
        self._placed = (columns, rows, count)
        small = self.essential and (columns < 60 or rows < 16)
        self.give("#essentials", small)
        for part in ("#header", "#body", "#keys"):
            self.give(part, not small)
        with_tabs = rows >= TABS_FROM and not small
        self.give("#tabs", with_tabs)
        self.give("#notices", count > 0 and not small, height=count)
        taken = 2 + with_tabs + (0 if small else count)
        self.lay_out(columns, max(rows - taken, 0))

    def give(
        self, part: str, shown: bool, *, height: int | None = None, width: int | None = None
    ) -> None:
        """Show or hide a part, and give it a size."""
        widget = self.query_one(part)
        widget.display = shown
        if shown and height is not None:
            widget.styles.height = height
        if shown and width is not None:
            widget.styles.width = width
