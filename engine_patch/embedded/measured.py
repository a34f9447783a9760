"""What was measured: rows of the closed-loop runs, and times read from logs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF, TierName

OUTPUT_TOKENS = 256
"""Output tokens of every request of the measured load."""
SHORT_CHAIN, CHAIN, TREE = "s1k1d2", "s3k1d4", "s2k4d16"
STEPS_ZERO = 1.1
"""A row of the adaptive servers below this accept length ran at zero steps; what lies above 1 are
the drains of its waves, where it hopped to one or three steps."""

Cost = tuple[str, ...]
"""Name of an unknown cost."""


@dataclass(frozen=True)
class Setting:
    """What a row ran: backend, tier, how off runs, accept length, whether on a plain server."""

    backend: str
    tier: TierName
    off_kind: OffKind
    accept_length: float = 1.0
    plain: bool = False

    @property
    def column(self) -> Cost:
        """The column its step times belong to; accept length has no part in it."""
        return ("step", self.backend, self.tier, self.off_kind)


@dataclass(frozen=True)
class Row:
    """One measured run of the closed loop."""

    setting: Setting
    clients: int
    requests: int
    seconds: float

    @property
    def tok_s(self) -> float:
        """Output tokens per second."""
        return self.requests * OUTPUT_TOKENS / self.seconds


@dataclass(frozen=True)
class Anchor:
    """A decode round's time, read from a server's log."""

    setting: Setting
    batch: int
    ms: float


@dataclass(frozen=True)
class Raw:
    """Everything that was measured.

    Args:
        prefill_ms: one prefill pass of one request on a server with a drafter.
    """

    rows: tuple[Row, ...]
    anchors: tuple[Anchor, ...]
    prefill_ms: float

    def cells(self) -> dict[tuple[Setting, int], list[Row]]:
        """Rows by setting and clients: repeats share a cell."""
        cells: dict[tuple[Setting, int], list[Row]] = {}
        for row in self.rows:
            cells.setdefault((row.setting, row.clients), []).append(row)
        return cells

    def measured(self, column: Cost) -> tuple[int, ...]:
        """Batch sizes at which a column was measured, rising."""
        return tuple(sorted({row.clients for row in self.rows if row.setting.column == column}))


def read(folder: Path) -> Raw:
    """Read the raw rows and anchors."""
    anchors = json.loads((folder / "anchors.json").read_text())
    return Raw(
        rows=rows_of((folder / "bench.jsonl").read_text().splitlines()),
        anchors=tuple(
            Anchor(
                Setting(said["backend"], OFF, OffKind(said["off_kind"]), plain=said["plain"]),
                said["batch"],
                said["ms"],
            )
            for said in anchors["decode_round_ms"]
        ),
        prefill_ms=anchors["prefill_pass_one_request_ms"],
    )


def rows_of(lines: Iterable[str]) -> tuple[Row, ...]:
    """The rows that ran one tier throughout; the others are left out."""
    rows = []
    for line in lines:
        said = json.loads(line)
        setting = _setting(said["name"], said["conc"], said["accept_len"])
        if setting is not None:
            rows.append(Row(setting, said["conc"], said["requests"], said["seconds"]))
    return tuple(rows)


def _setting(name: str, clients: int, accept_length: float | None) -> Setting | None:
    backend = "fa3" if name.endswith("-fa3") else "triton"
    profile, _, length = name.removesuffix("-fa3").partition("-acc")
    verify = OffKind.ONE_TOKEN_VERIFY
    if profile == "plain":
        return Setting(backend, OFF, OffKind.PLAIN_PATH, plain=True)
    if profile in ("chain", "tree"):
        return Setting(backend, CHAIN if profile == "chain" else TREE, verify, float(length))
    if accept_length is not None and accept_length < STEPS_ZERO:
        return Setting(backend, OFF, verify)
    # At 64 the adaptive controller ran one step (by its log, and every draft was accepted).  The
    # stock one did so with its draft-extend outside the graph, a defect: its rows are left out.
    if profile == "adaptivefix" and clients == 64:
        return Setting(backend, SHORT_CHAIN, verify, 2.0)
    return None
