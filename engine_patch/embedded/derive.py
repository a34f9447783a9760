"""Derive the shipped tables from measured closed-loop rows.

    python -m engine_patch.embedded.derive RAW OUT

``RAW`` holds ``bench.jsonl`` (one row per server, concurrency and run: requests, seconds) and
``anchors.json`` (times read directly from logs); ``OUT`` receives one JSON per table.

A row's seconds are no step time: they contain prefill passes, ramps and waits.  So each row is run
on the embedded engine with the same load, and what happened in it is counted: prefill passes,
prompt tokens, decode steps at each batch size.  Its measured seconds must equal the sum of those
counts times the unknown costs.  All rows together, one equation per cell (repeats averaged) plus
one per anchor, each in relative error, are solved by least squares for all costs of both tables at
once: one step time per tier and measured batch size, whatever the accept length, and three numbers
for prefill.  Counts could depend on the costs, hence a second round.

What no row identifies is estimated by a rule named in the column's ``source`` and marked.
"""

from __future__ import annotations

import bisect
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_patch.contract import Identity, OffKind
from engine_patch.costs import BUCKETS
from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.closed_loop import LoopResult, run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig, Kind, Pass
from engine_patch.embedded.linear import least_squares
from engine_patch.embedded.table import NAMES, Cell, Column, Prefill, Table
from engine_patch.tier import OFF, TierName

PROMPT_TOKENS, OUTPUT_TOKENS = 128, 256
"""The measured load's request."""
CHUNK_TOKENS = 8192
LARGEST = 256
ROUNDS = 2
SHORT_CHAIN, CHAIN, TREE = "s1k1d2", "s3k1d4", "s2k4d16"
STEPS_ZERO = 1.1
"""A row of the adaptive servers below this accept length ran at zero steps; what lies above 1 are
the drains of its waves, where it hopped to one or three steps."""

Cost = tuple[str, ...]
"""Name of an unknown cost."""
PASS: Cost = ("pass",)
PLAIN_TOKEN: Cost = ("token", "plain")
DRAFT_TOKEN: Cost = ("token", "draft")


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


def replay(row: Row, table: Table, on_pass: Callable[[Pass], None] | None = None) -> LoopResult:
    """Run a row's load on the embedded engine."""
    setting = row.setting
    if setting.plain:
        config = EngineConfig.plain_server(table, max_running_requests=LARGEST)
    else:
        config = EngineConfig(
            table=table,
            tiers=(setting.tier,),
            launch_tier=setting.tier,
            off_kind=setting.off_kind,
            accept_length=setting.accept_length,
            accept_mode=AcceptMode.EXACT,
            max_running_requests=LARGEST,
        )
    work = [(PROMPT_TOKENS, OUTPUT_TOKENS)] * row.requests
    return run_closed_loop(Engine(config, on_pass=on_pass), work, row.clients)


def count(row: Row, table: Table, batches: Sequence[int]) -> dict[Cost, float]:
    """How often a row paid each cost; steps between two measured batch sizes count in shares."""
    counts: defaultdict[Cost, float] = defaultdict(float)
    token = PLAIN_TOKEN if row.setting.plain else DRAFT_TOKEN

    def add(done: Pass) -> None:
        if done.kind is Kind.PREFILL:
            counts[PASS] += 1
            counts[token] += done.tokens
        else:
            for batch, share in _shares(len(done.requests), batches):
                counts[*row.setting.column, str(batch)] += share

    replay(row, table, add)
    return dict(counts)


def _shares(batch: int, batches: Sequence[int]) -> tuple[tuple[int, float], ...]:
    place = bisect.bisect_left(batches, batch)
    if place == len(batches):
        return ((batches[-1], 1.0),)
    high = batches[place]
    if place == 0 or high == batch:
        return ((high, 1.0),)
    low = batches[place - 1]
    share = (batch - low) / (high - low)
    return ((low, 1 - share), (high, share))


@dataclass(frozen=True)
class Fit:
    """Solved costs in milliseconds, and how many decode steps each step time rests on."""

    costs: Mapping[Cost, float]
    steps: Mapping[Cost, float]


def fit(raw: Raw, tables: Mapping[str, Table]) -> Fit:
    """One round: count with the present tables, then solve."""
    steps: defaultdict[Cost, float] = defaultdict(float)
    equations: list[dict[Cost, float]] = []
    for rows in raw.cells().values():
        equation: defaultdict[Cost, float] = defaultdict(float)
        for row in rows:
            batches = raw.measured(row.setting.column)
            for cost, times in count(row, tables[row.setting.backend], batches).items():
                equation[cost] += times / (row.seconds * 1000) / len(rows)
                steps[cost] += times
        equations.append(dict(equation))
    equations += [
        {(*anchor.setting.column, str(anchor.batch)): 1 / anchor.ms} for anchor in raw.anchors
    ]
    equations.append({PASS: 1 / raw.prefill_ms, DRAFT_TOKEN: PROMPT_TOKENS / raw.prefill_ms})
    return Fit(least_squares(equations), steps)


def derive(raw: Raw) -> dict[str, Table]:
    """The tables by backend."""
    tables = {backend: _first_guess(backend) for backend in NAMES}
    for _ in range(ROUNDS):
        solved = fit(raw, tables)
        tables = {backend: _table(backend, raw, solved) for backend in NAMES}
    return tables


def _table(backend: str, raw: Raw, solved: Fit) -> Table:
    def known(tier: TierName, off_kind: OffKind) -> dict[int, Cell]:
        column = Setting(backend, tier, off_kind).column
        return {
            batch: _cell(
                batch,
                solved.costs[*column, str(batch)],
                round(solved.steps[*column, str(batch)]),
            )
            for batch in raw.measured(column)
        }

    verify = OffKind.ONE_TOKEN_VERIFY
    plain = _between(known(OFF, OffKind.PLAIN_PATH))
    chain = _between(known(CHAIN, verify))
    one_token = _one_token(known(OFF, verify), plain)
    columns = (
        Column(tier=OFF, off_kind=OffKind.PLAIN_PATH, source=_PLAIN, cells=plain),
        Column(tier=OFF, off_kind=verify, source=_ONE_TOKEN, cells=one_token),
        Column(
            tier=SHORT_CHAIN,
            source=_SHORT_CHAIN,
            cells=_short_chain(known(SHORT_CHAIN, verify), one_token, chain),
        ),
        Column(tier=CHAIN, source=_CHAIN, cells=chain),
        Column(tier=TREE, source=_TREE, cells=_between(known(TREE, verify))),
    )
    prefill = Prefill(
        pass_ms=round(solved.costs[PASS], 3),
        plain_token_ms=round(solved.costs[PLAIN_TOKEN], 6),
        draft_token_ms=round(solved.costs[DRAFT_TOKEN], 6),
        chunk_tokens=CHUNK_TOKENS,
    )
    return _named(backend, prefill, columns)


def _cell(batch: int, ms: float, samples: int = 0) -> Cell:
    return Cell(batch=batch, mean_ms=round(ms, 3), samples=samples, measured=samples > 0)


def _between(known: Mapping[int, Cell]) -> tuple[Cell, ...]:
    """Every bucket: measured cells, and between them the straight line."""
    batches = sorted(known)
    cells = []
    for batch in BUCKETS:
        if batch in known:
            cells.append(known[batch])
        elif batch < batches[-1]:
            shares = _shares(batch, batches)
            cells.append(_cell(batch, sum(known[at].mean_ms * share for at, share in shares)))
    return tuple(cells)


def _one_token(known: Mapping[int, Cell], plain: Sequence[Cell]) -> tuple[Cell, ...]:
    """Below the smallest measured batch: plain, plus its extra there in proportion to the batch."""
    lowest = min(known)
    by_batch = {cell.batch: cell.mean_ms for cell in plain}
    extra = (known[lowest].mean_ms - by_batch[lowest]) / lowest
    estimated = {
        batch: _cell(batch, ms + extra * batch) for batch, ms in by_batch.items() if batch < lowest
    }
    return _between({**estimated, **known})


def _short_chain(
    known: Mapping[int, Cell], one_token: Sequence[Cell], chain: Sequence[Cell]
) -> tuple[Cell, ...]:
    """Where not measured: as far between one-token verify and the chain of three as at 64."""
    ends = {
        low.batch: (low.mean_ms, high.mean_ms) for low, high in zip(one_token, chain, strict=True)
    }
    (batch, cell), *others = known.items()
    if others:
        raise ValueError(f"{SHORT_CHAIN} was measured at more than one batch: interpolate it")
    low, high = ends[batch]
    share = (cell.mean_ms - low) / (high - low)
    return tuple(
        known.get(at) or _cell(at, low + share * (high - low)) for at, (low, high) in ends.items()
    )


def _first_guess(backend: str) -> Table:
    """Any costs of a sane size, to count with before the first solution."""
    cells = (_cell(1, 5.0), _cell(LARGEST, 30.0))
    tiers = ((OFF, OffKind.PLAIN_PATH), (OFF, OffKind.ONE_TOKEN_VERIFY))
    columns = [
        Column(tier=tier, off_kind=kind, source="guess", cells=cells) for tier, kind in tiers
    ]
    columns += [
        Column(tier=tier, source="guess", cells=cells) for tier in (SHORT_CHAIN, CHAIN, TREE)
    ]
    prefill = Prefill(
        pass_ms=20.0, plain_token_ms=0.03, draft_token_ms=0.03, chunk_tokens=CHUNK_TOKENS
    )
    return _named(backend, prefill, tuple(columns))


_PLAIN = (
    "server without speculation; used for off as plain decode too, which took the same round times "
    "within 3 % on triton and was not run on fa3; 2 to 192 between measured batches: interpolated"
)
_ONE_TOKEN = (
    "adaptive servers where they ran at zero steps (128 and 256 clients); below 128 estimated as "
    "the plain step plus its extra at 128 in proportion to the batch; 192 interpolated"
)
_SHORT_CHAIN = (
    "adaptive server with corrected draft-extend at 64 clients, where it ran one step; elsewhere "
    "estimated: as far between one-token verify and the chain of three as at 64"
)
_CHAIN = (
    "servers with a fixed chain of three at simulated accept lengths 2 and 3, one step time for "
    "both; other buckets interpolated"
)
_TREE = (
    "servers with a fixed tree (topk 4, 2 steps, 16 draft tokens) at simulated accept length 2; "
    "other buckets interpolated (fa3: not measured at 4)"
)
_PROVENANCE = (
    "Derived by engine_patch.embedded.derive from closed-loop runs (128 prompt and 256 output "
    "tokens, greedy, simulated acceptance, dummy weights of the Llama-3.1-8B shape, one-layer "
    "EAGLE-3 draft) on one H200 with SGLang 0.5.17, bf16, page size 1, CUDA graphs, overlap "
    "schedule, chunked prefill 8192. All prompts had 128 tokens and contexts stayed below 400 "
    "tokens: costs of longer ones are not measured."
)


def _named(backend: str, prefill: Prefill, columns: tuple[Column, ...]) -> Table:
    return Table(
        name=NAMES[backend],
        engine="sglang",
        engine_version="0.5.17",
        torch="2.11.0",
        flashinfer="0.6.15.post1",
        identity=Identity(
            model="llama-3.1-8b-shape",
            draft_model="llama-3.1-8b-eagle3-shape",
            algorithm="EAGLE3",
            dtype="bfloat16",
            gpu="NVIDIA H200",
            gpu_count=1,
            attention_backend=backend,
            max_running_requests=LARGEST,
        ),
        provenance=_PROVENANCE,
        prefill=prefill,
        columns=columns,
    )


def main(argv: Sequence[str]) -> int:
    """``RAW OUT``: write the tables; exit code 2 on a wrong command line."""
    if len(argv) != 2:
        sys.stderr.write("usage: python -m engine_patch.embedded.derive RAW OUT\n")
        return 2
    source, out = Path(argv[0]), Path(argv[1])
    for table in derive(read(source)).values():
        path = out / f"{table.name}.json"
        path.write_text(table.model_dump_json(indent=1, exclude_none=True) + "\n")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
