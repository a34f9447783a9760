"""Themes: dark, light and high contrast, told apart by blue and orange, never by red and green.

The hues are those of Okabe and Ito's colour-blind safe palette.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="specdeck-dark",
    primary="#56b4e9",
    secondary="#9ad0ee",
    accent="#56b4e9",
    warning="#e69f00",
    error="#ff7f50",
    success="#56b4e9",
    foreground="#d8dee6",
    background="#0f141a",
    surface="#171e27",
    panel="#202a36",
    dark=True,
)
LIGHT = Theme(
    name="specdeck-light",
    primary="#005a94",
    secondary="#2f7fb5",
    accent="#005a94",
    warning="#9a5b00",
    error="#b03a00",
    success="#005a94",
    foreground="#1b232c",
    background="#f6f7f9",
    surface="#e9ecf0",
    panel="#dde2e8",
    dark=False,
)
CONTRAST = Theme(
    name="specdeck-contrast",
    primary="#7fd0ff",
    secondary="#c8ecff",
    accent="#ffffff",
    warning="#ffc400",
    error="#ff8c5a",
    success="#7fd0ff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    dark=True,
    text_alpha=1.0,
)
THEMES = (DARK, LIGHT, CONTRAST)
