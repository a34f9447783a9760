"""Messages that workers post; handlers of the app are the only ones that change state."""

from __future__ import annotations

from textual.message import Message

from console.places import Need
from console.scene import Link
from controlplane.messages import About, EngineStatus
from store.records import Decision, EngineSwitch, Tick


class TickArrived(Message):
    """The control plane published a tick."""

    def __init__(self, tick: Tick) -> None:
        super().__init__()
        self.tick = tick


class StatusArrived(Message):
    """Who answers, what may be done, and every engine."""

    def __init__(self, about: About, engines: tuple[EngineStatus, ...]) -> None:
        super().__init__()
        self.about = about
        self.engines = engines


class HistoryArrived(Message):
    """What was stored of an engine before the console came."""

    def __init__(
        self,
        engine_id: str,
        ticks: tuple[Tick, ...],
        decisions: tuple[Decision, ...],
        switches: tuple[EngineSwitch, ...],
    ) -> None:
        super().__init__()
        self.engine_id = engine_id
        self.ticks = ticks
        self.decisions = decisions
        self.switches = switches


class LinkChanged(Message):
    """The connection to the control plane came or went."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link


class LookedUp(Message):
    """Something that a screen reads beside the stream came, or could not be read."""

    def __init__(self, need: Need, engine_id: str, value: object, trouble: str = "") -> None:
        super().__init__()
        self.need = need
        self.engine_id = engine_id
        self.value = value
        self.trouble = trouble


class EvidenceArrived(Message):
    """The tick on one observation, None if it is not stored any more or could not be read."""

    def __init__(self, engine_id: str, seq: int, tick: Tick | None, trouble: str = "") -> None:
        super().__init__()
        self.engine_id = engine_id
        self.seq = seq
        self.tick = tick
        self.trouble = trouble


class PlaceReady(Message):
    """A screen of the frame has its parts and can be shown a scene."""


class EngineWanted(Message):
    """An engine of the list is to be shown live."""

    def __init__(self, engine_id: str) -> None:
        super().__init__()
        self.engine_id = engine_id


class EvidenceWanted(Message):
    """The tick on one observation of the shown engine is to be read."""

    def __init__(self, seq: int) -> None:
        super().__init__()
        self.seq = seq
