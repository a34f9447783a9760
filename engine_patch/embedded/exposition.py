"""``/metrics``, ``/v1/loads``, ``/server_info`` and the small routes, in SGLang 0.5.17's names.

SGLang's habits are kept: gauges move with its log lines only, ``generation_tokens_total`` and
``spec_verify_calls_total`` only when a request finishes, the accept length of ``/v1/loads`` and
``/server_info`` is a lifetime mean.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from engine_patch.embedded.core import Engine
from engine_patch.embedded.host import Host
from engine_patch.tier import TierShape

IDLE_RESET_MS = 30_000.0
"""An idle SGLang sets its load gauges anew after this long."""


def information_routes(host: Callable[[], Host]) -> list[Route]:
    """The routes; ``host`` gives the present boot."""

    async def metrics(_http: HttpRequest) -> Response:
        return PlainTextResponse(exposition(host()), media_type="text/plain; version=0.0.4")

    async def loads(http: HttpRequest) -> Response:
        if http.query_params.get("format") == "prometheus":
            return PlainTextResponse(_load_lines(host()))
        return JSONResponse(load_report(host()))

    async def server_info(_http: HttpRequest) -> Response:
        return JSONResponse(server_report(host()))

    async def model_info(_http: HttpRequest) -> Response:
        model = host().identity.model
        return JSONResponse(
            {
                "model_path": model,
                "tokenizer_path": model,
                "is_generation": True,
                "specdeck_simulated": host().options.config.table.name,
            }
        )

    async def models(_http: HttpRequest) -> Response:
        card = {"id": host().identity.model, "object": "model", "owned_by": "specdeck-simulated"}
        return JSONResponse({"object": "list", "data": [card]})

    async def health(_http: HttpRequest) -> Response:
        return Response()

    async def set_internal_state(http: HttpRequest) -> Response:
        said = await http.json()
        known = not said.get("server_args")
        if known:
            # Any accepted update resets SGLang's lifetime accept counters.
            for engine in host().engines:
                engine.books.reset_lifetime()
        return JSONResponse([known] * len(host().engines))

    return [
        Route("/metrics", metrics),
        Route("/metrics/", metrics),
        Route("/v1/loads", loads),
        Route("/server_info", server_info),
        Route("/get_server_info", server_info),
        Route("/model_info", model_info),
        Route("/get_model_info", model_info),
        Route("/v1/models", models),
        Route("/health", health),
        Route("/health_generate", health),
        Route("/set_internal_state", set_internal_state, methods=["POST"]),
    ]


class Page:
    """A metrics page under construction."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str) -> Callable[..., None]:
        """Start a family; the returned function adds a sample with labels."""
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

        def sample(value: float, **labels: str) -> None:
            inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
            self._lines.append(f"{name}{{{inner}}} {float(value)}")

        return sample

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"


def exposition(host: Host) -> str:
    """The page of ``/metrics``."""
    now = host.pacer.catch_up()
    page = Page()
    note = f"(simulated: table {host.options.config.table.name})"
    lag, valid = host.lag.judge(now, host.pacer.overdue_ms())
    table = host.options.config.table.name
    page.family("specdeck_simulated", "gauge", "1: all times of this engine are simulated.")(
        1, table=table
    )
    page.family("specdeck_simulation_lag", "gauge", "Share by which answers fell behind.")(
        lag, table=table
    )
    page.family("specdeck_simulation_valid", "gauge", "0 once the lag exceeded its limit.")(
        int(valid), table=table
    )
    for engine in host.engines:
        settle_gauges(engine, now)
    model = {"engine_type": "unified", "model_name": host.identity.model}

    def ranked(name: str, text: str, value: Callable[[Engine], float | None]) -> None:
        """A gauge of each rank: TP ranks repeat it, DP replicas have their own."""
        sample = page.family(f"sglang:{name}", "gauge", f"{text} {note}")
        for engine, labels in _ranks(host):
            number = value(engine)
            if number is not None:
                sample(number, **model, **labels)

    capacity = host.options.config.kv_slots
    ranked("num_running_reqs", "The number of running requests.", lambda e: e.books.gauges.running)
    ranked(
        "num_queue_reqs",
        "The number of requests in the waiting queue.",
        lambda e: e.books.gauges.queued,
    )
    ranked("num_used_tokens", "The number of used tokens.", lambda e: e.books.gauges.used_tokens)
    ranked(
        "token_usage", "The token usage.", lambda e: round(e.books.gauges.used_tokens / capacity, 2)
    )
    ranked("kv_used_tokens", "Token slots in use.", lambda e: e.books.gauges.used_tokens)
    ranked("kv_evictable_tokens", "Cached token slots.", lambda e: e.books.gauges.evictable_tokens)
    ranked(
        "kv_available_tokens",
        "Free token slots.",
        lambda e: capacity - e.books.gauges.used_tokens - e.books.gauges.evictable_tokens,
    )
    ranked(
        "gen_throughput",
        "The generation throughput (token/s).",
        lambda e: e.books.gauges.gen_throughput,
    )
    ranked("cache_hit_rate", "The prefix cache hit rate.", lambda _e: 0.0)
    ranked("max_total_num_tokens", "KV slots in the pool.", lambda _e: capacity)
    ranked("page_size", "KV cache page size in tokens.", lambda _e: 1)
    if not host.options.config.plain:
        ranked(
            "spec_accept_length",
            "Mean accept length, bonus token included.",
            lambda e: e.books.gauges.accept_length,
        )
        ranked(
            "spec_accept_rate",
            "Accepted drafts / proposed drafts.",
            lambda e: e.books.gauges.accept_rate,
        )
        ranked("spec_num_steps", "Draft steps in use.", lambda e: e.books.gauges.num_steps)
        ranked(
            "spec_num_draft_tokens",
            "Draft tokens in use.",
            lambda e: e.books.gauges.num_draft_tokens,
        )
    _counters(host, page, model, note)
    return page.text()


def _counters(host: Host, page: Page, model: dict[str, str], note: str) -> None:
    engines = host.engines

    def total(name: str, text: str, value: Callable[[Engine], int], **labels: str) -> None:
        sample = page.family(f"sglang:{name}", "counter", f"{text} {note}")
        sample(sum(value(engine) for engine in engines), **model, **labels)

    calm = {"is_streaming": "false"}
    total("prompt_tokens_total", "Prefill tokens.", lambda e: e.books.prompt_tokens, **calm)
    total(
        "generation_tokens_total", "Generation tokens.", lambda e: e.books.generation_tokens, **calm
    )
    total("num_requests_total", "Requests.", lambda e: e.books.finished, **calm)
    if not host.options.config.plain:
        total("spec_verify_calls_total", "Verify calls.", lambda e: e.books.verify_calls)
    sample = page.family(
        "sglang:realtime_tokens_total", "counter", f"Tokens, each iteration. {note}"
    )
    for engine, labels in _ranks(host):
        if labels["tp_rank"] == "0":
            sample(engine.books.prefill_tokens, **model, **labels, mode="prefill_compute")
            sample(engine.books.decode_tokens, **model, **labels, mode="decode")
    sample = page.family(
        "sglang:cuda_graph_passes_total", "counter", f"Forward passes by graph. {note}"
    )
    for engine, labels in _ranks(host):
        if labels["tp_rank"] == "0":
            sample(engine.books.prefill_passes, **model, **labels, mode="prefill_cuda_graph")
            sample(engine.books.decode_steps, **model, **labels, mode="decode_cuda_graph")
    sample = page.family("sglang:num_retracted_reqs_total", "counter", f"Retractions. {note}")
    for engine, labels in _ranks(host):
        if labels["tp_rank"] == "0":
            sample(engine.books.retractions, **model, **labels)


def _ranks(host: Host) -> list[tuple[Engine, dict[str, str]]]:
    several = len(host.engines) > 1
    return [
        (
            engine,
            {"tp_rank": str(tp), "pp_rank": "0", "moe_ep_rank": "0"}
            | ({"dp_rank": str(engine.config.dp_rank)} if several else {}),
        )
        for engine in host.engines
        for tp in range(host.options.tp)
    ]


def settle_gauges(engine: Engine, now_ms: float) -> None:
    """What an idle SGLang does after half a minute: set its load gauges to nothing."""
    gauges = engine.books.gauges
    if engine.idle and now_ms - gauges.at_ms >= IDLE_RESET_MS:
        gauges.running, gauges.queued = len(engine.running), engine.queued
        gauges.used_tokens = engine.kv.committed + engine.kv.held
        gauges.evictable_tokens = engine.kv.evictable


def load_report(host: Host) -> dict[str, Any]:
    """Answer of ``/v1/loads``."""
    host.pacer.catch_up()
    stamp = dt.datetime.now(dt.UTC)
    return {
        "timestamp": stamp.isoformat(),
        "version": host.versions.engine_version,
        "specdeck_simulated": host.options.config.table.name,
        "accelerator": f"{host.identity.gpu} (simulated)",
        "num_accelerators": host.identity.gpu_count,
        "loads": [_load(engine, stamp.timestamp()) for engine in host.engines],
    }


def _load(engine: Engine, stamp: float) -> dict[str, Any]:
    books, kv, config = engine.books, engine.kv, engine.config
    used = kv.committed + kv.held
    moments = books.moments
    load: dict[str, Any] = {
        "timestamp": stamp,
        "dp_rank": config.dp_rank,
        "num_running_reqs": len(engine.running),
        "num_waiting_reqs": engine.queued,
        "num_waiting_uncached_tokens": sum(
            request.context - request.prefilled for request in engine.waiting
        ),
        "num_used_tokens": used,
        "num_total_tokens": used,
        "max_total_num_tokens": kv.capacity,
        "max_running_requests": config.max_running_requests,
        "token_usage": round(used / kv.capacity, 4),
        "gen_throughput": round(books.gauges.gen_throughput, 2),
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "total_prefill_uncached_tokens": books.prefill_tokens,
        "total_prefill_busy_us": round(books.prefill_busy_us),
        "decode_moments": [
            float(moments.steps),
            float(moments.batch),
            float(round(moments.time_us)),
            float(moments.batch_squared),
            float(round(moments.batch_time_us)),
            float(moments.tokens),
        ],
        "queues": {"waiting": engine.queued, "grammar": 0, "paused": 0, "retracted": 0},
    }
    length = books.lifetime_accept_length
    if not config.plain and length is not None:
        load["speculative"] = {"accept_length": length, "accept_rate": books.lifetime_accept_rate}
    return load


def _load_lines(host: Host) -> str:
    lines = []
    for load in load_report(host)["loads"]:
        for key, value in load.items():
            if key not in ("timestamp", "dp_rank") and isinstance(value, int | float):
                lines.append(f'sglang_{key}{{dp_rank="{load["dp_rank"]}"}} {value}')
    return "\n".join(lines) + "\n"


def server_report(host: Host) -> dict[str, Any]:
    """Answer of ``/server_info``: the arguments that matter, and the inner state."""
    host.pacer.catch_up()
    options, config = host.options, host.options.config
    launch = TierShape.parse(config.launch_tier)
    speculating = not config.plain
    arguments: dict[str, Any] = {
        "model_path": host.identity.model,
        "served_model_name": host.identity.model,
        "dtype": host.identity.dtype,
        "attention_backend": host.identity.attention_backend,
        "tp_size": options.tp,
        "dp_size": options.dp,
        "page_size": 1,
        "max_running_requests": config.max_running_requests,
        "chunked_prefill_size": config.table.prefill.chunk_tokens,
        "decode_log_interval": 40,
        "enable_metrics": True,
        "disable_overlap_schedule": False,
        "speculative_algorithm": host.identity.algorithm if speculating else None,
        "speculative_draft_model_path": host.identity.draft_model if speculating else None,
        "speculative_num_steps": launch.num_steps if speculating else None,
        "speculative_eagle_topk": launch.topk if speculating else None,
        "speculative_num_draft_tokens": launch.num_draft_tokens if speculating else None,
    }
    return arguments | {
        "internal_states": [_inner(engine) for engine in host.engines],
        "version": host.versions.engine_version,
        "max_total_num_tokens": config.kv_slots,
        "status": "ready",
        "specdeck_simulated": {
            "table": config.table.name,
            "source": config.table.provenance,
            "note": "all times of this engine are simulated",
        },
    }


def _inner(engine: Engine) -> dict[str, Any]:
    config, books = engine.config, engine.books
    state: dict[str, Any] = {
        "last_gen_throughput": books.gauges.gen_throughput,
        "effective_max_running_requests_per_dp": config.max_running_requests,
        "memory_usage": {"token_capacity": config.kv_slots},
    }
    if not config.plain:
        shape = TierShape.parse(engine.chooser.tier)
        state |= {
            "avg_spec_accept_length": books.lifetime_accept_length,
            "speculative_num_steps": shape.num_steps,
            "speculative_num_draft_tokens": shape.num_draft_tokens,
            "speculative_eagle_topk": shape.topk,
            "max_speculative_num_draft_tokens": max(
                TierShape.parse(tier).num_draft_tokens for tier in config.tiers
            ),
        }
    return state
