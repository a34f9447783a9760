"""Lengths of time as people write them: ``90s``, ``10m``, ``1h30m``.  Pure."""

from __future__ import annotations

import re

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_duration(text: str) -> float:
    """Seconds of a written length.

    Raises:
        ValueError: it is not written like that, or is zero.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is no length of time: write it like 90s, 10m or 1h30m")
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    seconds = sum(float(number) * unit for number, unit in parts if number)
    if seconds <= 0:
        raise ValueError("a length of time must be above zero")
    return seconds


def written(seconds: float) -> str:
    """A length as a person reads it, to the second, two units at most."""
    left = max(round(seconds), 0)
    out: list[str] = []
    for unit, length in _UNITS.items():
        count, left = divmod(left, int(length))
        if count or (unit == "s" and not out):
            out.append(f"{count}{unit}")
    return "".join(out[:2])
