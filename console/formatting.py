"""Numbers, times and foreign text as an operator reads them.  Pure.

A missing value is ``None`` here and "-" on the screen, never 0.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

MISSING = "-"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs the screen is drawn with; ``ASCII`` is the set for terminals without Unicode.

    Args:
        bars: levels of a trend column from the bottom of the range to its top; a gap is a space,
            so that no level may be one.
    """

    on: str = "▲"
    middle: str = "■"
    off: str = "○"
    unknown: str = "?"
    nothing: str = "·"
    live: str = "●"
    frozen: str = "‖"
    alarm: str = "!"
    dot: str = "·"
    arrow: str = "→"
    up: str = "↑"
    down: str = "↓"
    at_least: str = "≥"
    at_most: str = "≤"
    ellipsis: str = "…"
    to: str = "–"
    cursor: str = "▸"
    left: str = "‹"
    right: str = "›"
    bars: str = "▁▂▃▄▅▆▇█"
    box: tuple[str, str, str, str, str, str] = ("╭", "╮", "╰", "╯", "─", "│")
    ascii: bool = False


UNICODE = Glyphs()
ASCII = Glyphs(
    on="^",
    middle="#",
    off="o",
    nothing=".",
    live="*",
    frozen="=",
    dot="|",
    arrow="->",
    up="^",
    down="v",
    at_least=">=",
    at_most="<=",
    ellipsis="~",
    to="-",
    cursor=">",
    left="<",
    right=">",
    bars="_.-~=+*#",
    box=("+", "+", "+", "+", "-", "|"),
    ascii=True,
)


def clean(text: str) -> str:
    """``text`` with nothing in it that a terminal would act on or hide.

    Engines, operators and servers write names, reasons and messages.  Line breaks and tabs become
    spaces; escape, control, invisible and direction-changing characters become U+FFFD.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char.isspace() else REPLACEMENT for char in text
    )


def plain_ascii(text: str) -> str:
    """``text`` for a terminal without Unicode: one "?" per cell it cannot show."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else "?" * _cells_of(char) for char in text)


def number(value: float | None, decimals: int = 0) -> str:
    """A number with thin grouping: ``1 490``, ``3.42``; "-" when missing."""
    if value is None or value != value:  # NaN is as missing as None
        return MISSING
    # Adding zero takes the minus off a value that rounds to nothing.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace(",", " ")


def short(value: float | None) -> str:
    """A range end in few characters: ``64``, ``2.5``, ``4k``, ``1.5M``; "-" when missing."""
    if value is None:
        return MISSING
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def metric(value: float | None, unit: str) -> str:
    """A clause's value in its unit: a share as percent, tokens with two decimals."""
    if value is None:
        return MISSING
    if unit == "share":
        return number(100 * value, 0 if float(100 * value).is_integer() else 1)
    if unit == "tok":
        return number(value, 2)
    return number(value, 0 if float(value).is_integer() else 1)


def unit_word(unit: str) -> str:
    """The written unit of a clause: "share" is shown in percent."""
    return "%" if unit == "share" else unit


def seconds(value: float | None) -> str:
    """A length of time: ``0.3s``, ``12s``, ``4m12s``, ``2h05m``, ``3d04h``; "-" when missing."""
    if value is None:
        return MISSING
    value = max(value, 0.0)
    if value < 9.95:
        return f"{value:.1f}s"
    whole = int(value + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def length(value: float) -> str:
    """A length as a person gives it, without empty parts: ``10m``, ``1h``, ``1h30m``, ``90s``."""
    if value < 120 and value % 60:
        return f"{value:g}s"
    return seconds(value).replace("m00s", "m").replace("h00m", "h").replace("d00h", "d")


def countdown(value: float | None) -> str:
    """Time left, rounded up so that it reads 00:00 only at the end: ``03:41``, ``1:03:41``."""
    if value is None:
        return MISSING
    whole = max(0, -int(-value // 1))
    if whole < 3600:
        return f"{whole // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def milliseconds(value: float | None) -> str:
    """A latency: ``184ms``, ``2.1s``; "-" when missing."""
    if value is None:
        return MISSING
    return f"{value:.0f}ms" if value < 1000 else seconds(value / 1000)


def clock(at_utc_ms: int, zone: tzinfo | None) -> str:
    """Wall time ``12:04:31`` in ``zone`` (None: the zone of this machine at that moment)."""
    return _moment(at_utc_ms, zone).strftime("%H:%M:%S")


def moment(at_utc_ms: int, zone: tzinfo | None) -> str:
    """Wall time with its day, ``11-29 12:04``, in ``zone``."""
    return _moment(at_utc_ms, zone).strftime("%m-%d %H:%M")


def zone_name(at_utc_ms: int, zone: tzinfo | None) -> str:
    """The zone's short name at that moment: ``UTC``, ``CET``, ``+0530``."""
    moment = _moment(at_utc_ms, zone)
    return moment.tzname() or moment.strftime("%z")


def _moment(at_utc_ms: int, zone: tzinfo | None) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_utc_ms)).astimezone(zone)


@lru_cache(maxsize=8192)
def cells(text: str) -> int:
    """Cells ``text`` takes in a terminal: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(char) for char in text)


@lru_cache(maxsize=1024)
def _cells_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def head(text: str, width: int) -> str:
    """The beginning of ``text`` that fits ``width`` cells."""
    if cells(text) <= width:
        return text
    taken = 0
    for place, char in enumerate(text):
        taken += _cells_of(char)
        if taken > width:
            return text[:place]
    return text


def fill(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """``text`` in exactly ``width`` cells."""
    text = cut(text, width, glyphs)
    return text + " " * (width - cells(text))


def cut(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """``text`` in at most ``width`` cells; what was cut ends in an ellipsis."""
    if cells(text) <= width:
        return text
    if width <= 0:
        return ""
    return head(text, width - 1).rstrip() + glyphs.ellipsis


def fit(width: int, *variants: str, glyphs: Glyphs = UNICODE) -> str:
    """The first of ``variants`` (longest first) that fits ``width`` cells; the last one is cut."""
    for variant in variants:
        if cells(variant) <= width:
            return variant
    return cut(variants[-1], width, glyphs)
