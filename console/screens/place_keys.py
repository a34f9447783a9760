"""The keys that open the screens of the frame, from any of them and from those laid over them."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from console.places import PLACES

PLACE_KEYS: tuple[BindingType, ...] = tuple(
    Binding(
        entry.key,
        f"app.place('{entry.id}')",
        entry.name,
        id=f"place.{entry.id}",
        show=False,
        tooltip=f"{entry.name} screen: {entry.words}",
    )
    for entry in PLACES
)
