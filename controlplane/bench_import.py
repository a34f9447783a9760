"""Results of other tools: ``sglang.benchmark.serving``, aiperf, guidellm.

Read as their writers document and write them:

- ``sglang.benchmark.serving`` (SGLang 0.5.23): one JSON object per line, with ``max_concurrency``,
  ``output_throughput``, ``duration``, ``accept_length``, and the server's own ``server_info``.
- aiperf (0.13.0): ``profile_export_aiperf.json``, one object per run; each metric an object with
  ``avg``; the load under ``input_config.phases``, in earlier schemas ``input_config.loadgen``.
- guidellm (0.8.1): ``benchmarks.json``, an object with ``benchmarks``; each with
  ``config.strategy`` and ``metrics``, a metric's figures under ``successful``.

The last two do not know what the server speculated with: the caller says it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controlplane.bench_read import BenchFileError, json_rows, text_of
from controlplane.bench_records import PLAIN, BenchFile, BenchPoint
from engine_patch.tier import OFF, TierShape

Row = Mapping[str, Any]


def import_results(
    plain: Sequence[Path],
    speculative: Sequence[Path],
    *,
    tier: str | None = None,
    concurrency: int | None = None,
    backend: str | None = None,
    gpu: str | None = None,
) -> BenchFile:
    """Runs of a plain and a speculative server, from any of the three tools.

    Args:
        plain, speculative: result files.
        tier: what the speculative server ran; None where the results say it.
        concurrency: for results that do not say theirs.
        backend, gpu: of both servers, where the results do not say them.

    Raises:
        BenchFileError: a file is not understood, or does not say enough.
    """
    points: list[BenchPoint] = []
    notes: list[str] = []
    for paths, said in ((plain, PLAIN), (speculative, tier)):
        for path in paths:
            for place, row, tool in _rows(path):
                fields = _FIELDS[tool](row)
                fields["tier"] = _tier(path, place, fields.pop("told_tier", None), said)
                fields = {name: value for name, value in fields.items() if value is not None}
                if "concurrency" not in fields:
                    if concurrency is None:
                        raise BenchFileError(
                            f"{path}:{place}:1: {tool} did not limit or note the concurrency; "
                            "give it with --concurrency"
                        )
                    fields["concurrency"] = concurrency
                if backend is not None:
                    fields.setdefault("backend", backend)
                if gpu is not None:
                    fields.setdefault("gpu", gpu)
                for name in ("input_len", "output_len"):
                    if name in fields:
                        fields[name] = _alike(fields[name], name, points)
                points.append(_point(path, place, fields, points))
            notes.append(f"{path.name}: {tool} figures hold ramp and prefill, no steady window")
    return BenchFile(points=tuple(points), notes=tuple(dict.fromkeys(notes)))


def _alike(length: int, name: str, earlier: Sequence[BenchPoint]) -> int:
    """A mean length, or that of an earlier run within 5 %: the same load in other words."""
    for run in earlier:
        known = getattr(run, name)
        if known is not None and abs(known - length) <= 0.05 * known:
            return int(known)
    return length


def _point(
    path: Path, place: int, fields: dict[str, Any], earlier: Sequence[BenchPoint]
) -> BenchPoint:
    try:
        run = BenchPoint.model_validate(fields | {"source": f"{path.name}:{place}"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = str(first["loc"][0]) if first["loc"] else "row"
        message = str(first["msg"]).removeprefix("Value error, ")
        raise BenchFileError(f"{path}:{place}:1: {where}: {message}") from error
    seen = Counter((one.tier, one.concurrency, one.arrivals, one.rate_s) for one in earlier)
    repeat = seen[run.tier, run.concurrency, run.arrivals, run.rate_s] + 1
    return run.model_copy(update={"repeat": repeat})


def _tier(path: Path, place: int, told: str | None, said: str | None) -> str:
    if said is None and told is None:
        raise BenchFileError(
            f"{path}:{place}:1: the results do not say what the server speculated with; "
            "give it with --tier, for example --tier s3k1d4"
        )
    if said is not None and told is not None and said != told:
        wanted = "a plain server" if said == PLAIN else said
        raise BenchFileError(
            f"{path}:{place}:1: these are results of "
            f"{'a plain server' if told == PLAIN else told}, not of {wanted}"
        )
    return told if said is None and told is not None else str(said)


def _rows(path: Path) -> list[tuple[int, Row, str]]:
    """Runs of a file with their line or number, and the tool that wrote them."""
    found: list[tuple[int, Row, str]] = []
    for number, row in enumerate(json_rows(path, text_of(path), foreign=True), 1):
        if "output_throughput" in row:
            found.append((number, row, "sglang.benchmark.serving"))
        elif isinstance(row.get("benchmarks"), list):
            found += [
                (place, one, "guidellm")
                for place, one in enumerate(row["benchmarks"], 1)
                if isinstance(one, dict)
            ]
        elif isinstance(row.get("output_token_throughput"), dict):
            found.append((number, row, "aiperf"))
        else:
            raise BenchFileError(
                f"{path}:{number}:1: not understood: expected output_throughput "
                "(sglang.benchmark.serving), output_token_throughput (aiperf) or benchmarks "
                "(guidellm)"
            )
    return found


def _sglang(row: Row) -> dict[str, Any]:
    info = row.get("server_info")
    rate = row.get("request_rate")
    requests, out, prompt = (
        row.get("completed"),
        row.get("total_output_tokens"),
        row.get("total_input_tokens"),
    )
    version = _get(info, "version")
    return {
        "told_tier": _sglang_tier(info),
        "concurrency": row.get("max_concurrency"),
        "tok_s": row.get("output_throughput"),
        "accept_length": row.get("accept_length") or None,
        "seconds": row.get("duration"),
        "requests": requests,
        "input_len": _mean(prompt, requests),
        "output_len": _mean(out, requests),
        "ttft_s": _seconds(row.get("median_ttft_ms")),
        "tpot_s": _seconds(row.get("median_tpot_ms")) or None,
        "backend": _get(info, "attention_backend"),
        "engine_version": f"SGLang {version}" if version else None,
        "cap": _get(info, "internal_states", 0, "effective_max_running_requests_per_dp")
        or _get(info, "max_running_requests"),
        "not_comparable": _open_loop(rate, row.get("max_concurrency")),
    }


def _sglang_tier(info: object) -> str | None:
    if not isinstance(info, dict) or "speculative_algorithm" not in info:
        return None
    if info["speculative_algorithm"] is None:
        return PLAIN
    numbers = [
        info.get(f"speculative_{name}") for name in ("num_steps", "eagle_topk", "num_draft_tokens")
    ]
    if info.get("speculative_adaptive") or not all(isinstance(one, int) for one in numbers):
        return None
    try:
        shape = TierShape(num_steps=numbers[0], topk=numbers[1], num_draft_tokens=numbers[2])
    except ValidationError:
        return None
    return shape.name if shape.name != OFF else None


def _aiperf(row: Row) -> dict[str, Any]:
    errors = _get(row, "error_request_count", "avg")
    concurrency, held = _aiperf_load(row)
    return {
        "concurrency": concurrency,
        "tok_s": _get(row, "output_token_throughput", "avg"),
        "seconds": _get(row, "benchmark_duration", "avg"),
        "requests": _whole(_get(row, "request_count", "avg")),
        "failed": _whole(errors) or 0,
        "input_len": _whole(_get(row, "input_sequence_length", "avg")),
        "output_len": _whole(_get(row, "output_sequence_length", "avg")),
        "ttft_s": _seconds(_get(row, "time_to_first_token", "p50")),
        "tpot_s": _seconds(_get(row, "inter_token_latency", "p50")) or None,
        "not_comparable": (("the run was cancelled",) if row.get("was_cancelled") else ()) + held,
    }


def _aiperf_load(row: Row) -> tuple[Any, tuple[str, ...]]:
    """The concurrency, and why it was not held; ``loadgen`` until schema 1.3, then ``phases``."""
    load = _get(row, "input_config", "loadgen")
    phases = _get(row, "input_config", "phases")
    for phase in phases if isinstance(phases, list) else ():
        if _get(phase, "kind") == "profiling":
            load = phase
    mean = _whole(_get(row, "effective_concurrency", "avg"))
    concurrency = _get(load, "concurrency") or mean
    kind = _get(load, "type")
    rate = _get(load, "request_rate") if kind is None else _get(load, "rate")
    held = _open_loop(rate, concurrency)
    if not held and kind not in (None, "concurrency"):
        held = (f"load {kind}: concurrency {concurrency or '-'} was not held",)
    return concurrency, held


def _guidellm(row: Row) -> dict[str, Any]:
    strategy = _get(row, "config", "strategy") or _get(row, "args", "strategy")
    kind = _get(strategy, "type_")
    streams = _get(strategy, "streams") if kind == "concurrent" else None
    if kind == "synchronous":
        streams = 1
    metrics = _get(row, "metrics")
    held: tuple[str, ...] = ()
    if kind not in ("concurrent", "synchronous"):
        streams = _whole(_get(metrics, "request_concurrency", "successful", "mean"))
        held = (f"strategy {kind}: the concurrency was not held, {streams or '-'} on average",)
    return {
        "concurrency": streams,
        "tok_s": _get(metrics, "output_tokens_per_second", "successful", "mean"),
        "seconds": _get(row, "duration"),
        "requests": _whole(_get(metrics, "request_totals", "successful")),
        "failed": _whole(_get(metrics, "request_totals", "errored")) or 0,
        "running": _get(metrics, "request_concurrency", "successful", "mean"),
        "input_len": _whole(_get(metrics, "prompt_token_count", "successful", "mean")),
        "output_len": _whole(_get(metrics, "output_token_count", "successful", "mean")),
        "ttft_s": _seconds(_get(metrics, "time_to_first_token_ms", "successful", "median")),
        # What guidellm calls the time per output token counts the first token's wait as well.
        "tpot_s": _seconds(_get(metrics, "inter_token_latency_ms", "successful", "median")) or None,
        "not_comparable": held,
    }


_FIELDS = {"sglang.benchmark.serving": _sglang, "aiperf": _aiperf, "guidellm": _guidellm}


def _get(value: Any, *path: str | int) -> Any:
    for step in path:
        if isinstance(step, int) and isinstance(value, list) and len(value) > step:
            value = value[step]
        elif isinstance(step, str) and isinstance(value, Mapping):
            value = value.get(step)
        else:
            return None
    return value


def _open_loop(rate: object, concurrency: object) -> tuple[str, ...]:
    """A run that sent requests at a rate did not hold a concurrency, even below a limit."""
    if rate == "trace":
        return ("requests came as in a trace: no concurrency was held",)
    at = _number(rate)
    if at is not None:
        return (f"requests came at {at:g} per second: concurrency {concurrency} was not held",)
    return ()


def _number(value: object) -> float | None:
    """A finite number; None for anything else that may stand in its place."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _mean(total: object, count: object) -> int | None:
    whole, parts = _number(total), _number(count)
    if whole is None or parts is None or parts <= 0:
        return None
    return _whole(max(1.0, whole / parts))


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _seconds(ms: object) -> float | None:
    number = _number(ms)
    return None if number is None else number / 1000
