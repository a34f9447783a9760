"""The page of ``/metrics``, in SGLang 0.5.17's names.

SGLang's habits are kept: gauges move with its log lines only, ``generation_tokens_total`` and
``spec_verify_calls_total`` only when a request finishes, ``realtime_tokens_total`` with every pass.
"""

from __future__ import annotations

from collections.abc import Callable

from engine_patch.embedded.core import Engine
from engine_patch.embedded.host import Host

IDLE_RESET_MS = 30_000.0
"""An idle SGLang sets its load gauges anew after this long."""


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
    model = {"engine_type": "unified", "model_name": host.state.identity.model}

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
