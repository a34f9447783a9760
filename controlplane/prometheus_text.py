"""Prometheus text of an SGLang server, cut down to the families that are needed.  Pure.

A scrape of a busy server is 60 kB and more, nearly all of it histogram buckets.  Lines are chosen
by name first and only those are given to the parser.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class MetricsError(ValueError):
    """An engine's answer cannot be read; the message says which part."""


class Series(NamedTuple):
    """One line of a scrape; a value that is no number (``NaN``, infinite) is None."""

    labels: Mapping[str, str]
    value: float | None


@lru_cache(maxsize=8)
def _lines_of(names: frozenset[str]) -> re.Pattern[str]:
    # The whole name must match: `x_total` does not bring `x_created` or `x_total_bucket` along.
    return re.compile(rf"^sglang[:_](?:{'|'.join(sorted(names))})[ {{].*$", re.MULTILINE)


def read_series(text: str, names: Collection[str]) -> dict[str, tuple[Series, ...]]:
    """The series of the wanted families, by family name without prefix.

    SGLang writes ``sglang:`` on ``/metrics`` and ``sglang_`` in some versions and on
    ``/v1/loads?format=prometheus``; both are read.  A family that a scrape carries under both is
    taken once, from ``sglang:``.  A family that is not there is not in the result: missing is never
    zero.

    Args:
        text: the body of the answer.
        names: family names without prefix, counters with their ``_total``.

    Raises:
        MetricsError: a wanted line is malformed, or the text was cut off before its end.
    """
    if text and not text.endswith("\n"):
        # Half of a number is a number too: a cut-off counter would look like a restart.
        raise MetricsError("the metrics text is cut off: its last line has no end")
    chosen = "\n".join(_lines_of(frozenset(names)).findall(text)) + "\n"
    found: dict[str, dict[str, list[Series]]] = {}
    try:
        for family in text_string_to_metric_families(chosen):
            for sample in family.samples:
                series = Series(sample.labels, _number(sample.value))
                by_prefix = found.setdefault(sample.name[7:], {})
                by_prefix.setdefault(sample.name[6], []).append(series)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise MetricsError(f"a metrics line cannot be read: {error}") from error
    return {name: tuple(kinds.get(":") or kinds["_"]) for name, kinds in found.items()}


def _number(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
