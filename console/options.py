"""How a console was started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

from console.places import FIRST


@dataclass(frozen=True)
class Options:
    """How the console was started.

    Args:
        engine_id: the engine to begin with, None for the first.
        readonly: refuse every change.
        author: the name overrides are made under.
        zone: the zone of all times, None for this machine's.
        place: the screen to begin with.
        moment: observation to show in place of the present, None for the present.
        keymap: keys by binding id, in place of the usual ones.
        theme: name of the theme to begin with, "" for the usual one.
        bell: whether faults and ending overrides ring.
    """

    engine_id: str | None = None
    readonly: bool = False
    ascii: bool = False
    author: str = "operator"
    zone: tzinfo | None = None
    no_color: bool = False
    place: str = FIRST
    moment: int | None = None
    keymap: Mapping[str, str] = field(default_factory=dict)
    theme: str = ""
    bell: bool = True
