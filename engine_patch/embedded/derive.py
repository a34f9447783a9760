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
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_patch.contract import Identity
from engine_patch.contract_words import OffKind
from engine_patch.costs import BUCKETS
from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.closed_loop import LoopResult, run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig, Kind, Pass
from engine_patch.embedded.linear import least_squares
from engine_patch.embedded.measured import (
    CHAIN,
    OUTPUT_TOKENS,
    SHORT_CHAIN,
    TREE,
    Cost,
    Raw,
    Row,
    Setting,
    read,
)
from engine_patch.embedded.table import NAMES, Cell, Column, Prefill, Table
from engine_patch.tier import OFF, TierName

PROMPT_TOKENS = 128
CHUNK_TOKENS = 8192
LARGEST = 256
ROUNDS = 2

PASS: Cost = ("pass",)
PLAIN_TOKEN: Cost = ("token", "plain")
DRAFT_TOKEN: Cost = ("token", "draft")


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
    "within 4 % on triton and 3 % on fa3; 2 to 192 between measured batches: interpolated"
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
