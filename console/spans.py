"""Lines of text with a role for each stretch.  Pure; widgets turn roles into colours.

Colour only repeats what shape and word already say, so a line is complete without its roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from console.formatting import UNICODE, Glyphs, cells, clean, head, plain_ascii


class Role(StrEnum):
    """What a stretch of text is, for the theme to colour."""

    TEXT = "text"
    LABEL = "label"
    VALUE = "value"
    RULE = "rule"
    TITLE = "title"
    ON = "on"
    MIDDLE = "middle"
    OFF = "off"
    WARNING = "warning"
    ALARM = "alarm"
    STALE = "stale"
    TREND = "trend"
    TREND_HIGH = "trend-high"
    CURSOR = "cursor"
    KEY = "key"
    BANNER = "banner"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text and its role."""

    text: str
    role: Role = Role.TEXT


Line = tuple[Span, ...]
BLANK: Line = ()


def line(*parts: Span | str | Iterable[Span]) -> Line:
    """A line of spans; plain strings become text, lines are joined in."""
    spans: list[Span] = []
    for part in parts:
        if isinstance(part, str):
            spans.append(Span(part))
        elif isinstance(part, Span):
            spans.append(part)
        else:
            spans.extend(part)
    return tuple(span for span in spans if span.text)


def plain(spans: Line) -> str:
    """The line's text without roles."""
    return "".join(span.text for span in spans)


def width(spans: Line) -> int:
    """Cells the line takes."""
    return sum(cells(span.text) for span in spans)


def crop(spans: Line, size: int, glyphs: Glyphs = UNICODE) -> Line:
    """The line in at most ``size`` cells; what was cut ends in an ellipsis."""
    if width(spans) <= size:
        return spans
    kept: list[Span] = []
    left = max(size - 1, 0)
    for span in spans:
        if cells(span.text) > left:
            if size > 0:
                kept.append(Span(head(span.text, left).rstrip() + glyphs.ellipsis, span.role))
            break
        kept.append(span)
        left -= cells(span.text)
    return tuple(kept)


def pad(spans: Line, size: int, glyphs: Glyphs = UNICODE) -> Line:
    """The line in exactly ``size`` cells."""
    spans = crop(spans, size, glyphs)
    missing = size - width(spans)
    return (*spans, Span(" " * missing)) if missing > 0 else spans


def spread(left: Line, right: Line, size: int, glyphs: Glyphs = UNICODE) -> Line:
    """``left`` and ``right`` at the two ends of exactly ``size`` cells; ``left`` is cut first."""
    right = crop(right, size, glyphs)
    return line(pad(left, size - width(right), glyphs), right)


def recolour(spans: Line, role: Role) -> Line:
    """The same text in one role."""
    return tuple(Span(span.text, role) for span in spans)


def safe(spans: Line, glyphs: Glyphs) -> Line:
    """The line with nothing in it that a terminal would act on; the last step before drawing."""
    text = plain(spans)
    if text.isprintable() and (text.isascii() or not glyphs.ascii):
        return spans
    cleaned = (Span(clean(span.text), span.role) for span in spans)
    if not glyphs.ascii:
        return tuple(cleaned)
    return tuple(Span(plain_ascii(span.text), span.role) for span in cleaned)


def rule(title: Line, note: Line, size: int, glyphs: Glyphs = UNICODE) -> Line:
    """A section's rule across ``size`` cells: ``─ title ──── note ─``."""
    stroke = glyphs.box[4]
    first = line(Span(f"{stroke} ", Role.RULE), title, " ")
    last = line(" ", note, " ", Span(stroke, Role.RULE)) if note else BLANK
    if width(first) + width(last) > size:
        last = BLANK
    between = max(size - width(first) - width(last), 0)
    return pad(line(first, Span(stroke * between, Role.RULE), last), size, glyphs)


def boxed(
    rows: Iterable[Line], title: Line, corner: Line, size: int, glyphs: Glyphs = UNICODE
) -> tuple[Line, ...]:
    """``rows`` in a frame ``size`` wide, with a title at the left and a note at the right."""
    top_left, top_right, bottom_left, bottom_right, stroke, side = glyphs.box
    inner = size - 2
    last = line(" ", corner, " ", Span(stroke * 2, Role.RULE)) if corner else BLANK
    first = line(Span(f"{stroke} ", Role.RULE), title, " ")
    if width(first) + width(last) > inner:
        first = line(crop(first, max(inner - width(last) - 1, 0), glyphs), " ")
    last = crop(last, max(inner - width(first), 0), glyphs)
    between = Span(stroke * max(inner - width(first) - width(last), 0), Role.RULE)
    edge = Span(side, Role.RULE)
    return (
        line(Span(top_left, Role.RULE), first, between, last, Span(top_right, Role.RULE)),
        *(line(edge, " ", pad(row, inner - 2, glyphs), " ", edge) for row in rows),
        line(Span(bottom_left + stroke * inner + bottom_right, Role.RULE)),
    )
