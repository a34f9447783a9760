"""Messages of the replay feed; the screen's handlers are the only ones that change its board."""

from __future__ import annotations

from textual.message import Message

from console.board import Board
from controlplane.replay_messages import Verification
from controlplane.sessions_messages import ReplayState, StripAnswer
from controlplane.whatif_messages import WhatIf
from store.records import Marker


class ReplayOpened(Message):
    """A replay answered for the first time."""

    def __init__(self, markers: tuple[Marker, ...]) -> None:
        super().__init__()
        self.markers = markers


class ReplayMoved(Message):
    """Where the replay stands, and the engine there."""

    def __init__(self, state: ReplayState, board: Board) -> None:
        super().__init__()
        self.state = state
        self.board = board

    def can_replace(self, message: Message) -> bool:
        """Only the newest position counts."""
        return isinstance(message, ReplayMoved)


class StripArrived(Message):
    """The time line was read again."""

    def __init__(self, strip: StripAnswer) -> None:
        super().__init__()
        self.strip = strip


class WhatIfAnswered(Message):
    """Another policy's answer, None once it was taken back."""

    def __init__(self, found: WhatIf | None) -> None:
        super().__init__()
        self.found = found


class Verified(Message):
    """What a verification found."""

    def __init__(self, found: Verification) -> None:
        super().__init__()
        self.found = found


class NothingThatWay(Message):
    """A jump found nothing."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class ReplayTrouble(Message):
    """The replay does not answer, or refused; "" once it answers again."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
