"""What a verification found: pure records."""

from __future__ import annotations

from engine_patch.tier import Frozen


class Difference(Frozen):
    """A field of a tick that the replay fills otherwise."""

    seq: int
    field: str
    recorded: str
    replayed: str


class Span(Frozen):
    """Neighbouring ticks that cannot be verified, both ends included, and why."""

    first_seq: int
    last_seq: int
    ticks: int
    why: str


class Verification(Frozen):
    """What a verification found.

    Args:
        verified: ticks whose replay is identical.
        differing: ticks whose replay is not; ``differences`` lists the first of them.
        not_verifiable: where the replay cannot know the controller's state.
        unreadable: damaged rows that were skipped.
        switches_same, switches_as_recorded: engine switches that the engine's own policy gives
            again, and those whose inputs are not in the recording.
    """

    ticks: int
    verified: int
    differing: int
    differences: tuple[Difference, ...] = ()
    not_verifiable: tuple[Span, ...] = ()
    unreadable: int = 0
    switches_same: int = 0
    switches_as_recorded: int = 0
    switches_differing: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.differing and not self.switches_differing
