"""The informing routes: ``/metrics``, ``/v1/loads``, ``/server_info``, models, health.

In SGLang 0.5.17's names and habits: the accept length of ``/v1/loads`` and ``/server_info`` is a
lifetime mean, any accepted ``/set_internal_state`` resets it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from engine_patch.embedded.core import Engine
from engine_patch.embedded.exposition import exposition
from engine_patch.embedded.host import Host
from engine_patch.tier import TierShape


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
        model = host().state.identity.model
        return JSONResponse(
            {
                "model_path": model,
                "tokenizer_path": model,
                "is_generation": True,
                "specdeck_simulated": host().options.config.table.name,
            }
        )

    async def models(_http: HttpRequest) -> Response:
        card = {
            "id": host().state.identity.model,
            "object": "model",
            "owned_by": "specdeck-simulated",
        }
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


def load_report(host: Host) -> dict[str, Any]:
    """Answer of ``/v1/loads``."""
    host.pacer.catch_up()
    stamp = dt.datetime.now(dt.UTC)
    return {
        "timestamp": stamp.isoformat(),
        "version": host.state.versions.engine_version,
        "specdeck_simulated": host.options.config.table.name,
        "accelerator": f"{host.state.identity.gpu} (simulated)",
        "num_accelerators": host.state.identity.gpu_count,
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
        "model_path": host.state.identity.model,
        "served_model_name": host.state.identity.model,
        "dtype": host.state.identity.dtype,
        "attention_backend": host.state.identity.attention_backend,
        "tp_size": options.tp,
        "dp_size": options.dp,
        "page_size": 1,
        "max_running_requests": config.max_running_requests,
        "chunked_prefill_size": config.table.prefill.chunk_tokens,
        "decode_log_interval": 40,
        "enable_metrics": True,
        "disable_overlap_schedule": False,
        "speculative_algorithm": host.state.identity.algorithm if speculating else None,
        "speculative_draft_model_path": host.state.identity.draft_model if speculating else None,
        "speculative_num_steps": launch.num_steps if speculating else None,
        "speculative_eagle_topk": launch.topk if speculating else None,
        "speculative_num_draft_tokens": launch.num_draft_tokens if speculating else None,
    }
    return arguments | {
        "internal_states": [_inner(engine) for engine in host.engines],
        "version": host.state.versions.engine_version,
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
