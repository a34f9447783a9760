"""Make the scrapes of this folder with SGLang's own metric code.

    python build.py FOLDER

Runs where SGLang 0.5.23 is installed.  One process stands for all ranks: the collector's label set
is exchanged and the same gauges and counters are written again, as each rank's process would.
"""

import sys
from pathlib import Path

import prometheus_client
import sglang.srt.observability.metrics_collector as sglang_metrics


class Settings:
    """The few configuration values the collectors read; everything else is unset."""

    prefill_delayer_max_delay_passes = 30

    def __getattr__(self, name: str) -> None:
        return None


GAUGES = {
    "gen_throughput": 900.5,
    "decode_sum_seq_lens": 1234,
    "num_used_tokens": 1300,
    "kv_available_tokens": 14000,
    "kv_evictable_tokens": 1084,
    "kv_used_tokens": 1300,
    "spec_accept_length": 2.25,
    "spec_accept_rate": 1.25 / 3,
    "spec_num_steps": 3,
    "spec_num_draft_tokens": 4,
}


def labels(**more):
    return {
        "model_name": "models/target",
        "engine_type": "unified",
        "tp_rank": 0,
        "pp_rank": 0,
        "moe_ep_rank": 0,
        **more,
    }


def collector(first):
    registry = prometheus_client.REGISTRY
    for known in list(registry._collector_to_names):
        registry.unregister(known)
    return sglang_metrics.SchedulerMetricsCollector(labels=first, server_args=None)


def report(scheduler, running, queued, decode_tokens, by_priority=None, **gauges):
    scheduler.emit_constants(16384, None, 1.0, 1.0, {"decode": 0.1}, None, 1, 16384, 2048, 10.0)
    stats = sglang_metrics.SchedulerStats(**{**GAUGES, **gauges})
    stats.num_running_reqs = sglang_metrics.QueueCount(running, by_priority)
    stats.num_queue_reqs = sglang_metrics.QueueCount(queued, by_priority and {0: queued})
    scheduler.log_stats(stats)
    scheduler.increment_realtime_tokens(
        None, prefill_compute_tokens=500, decode_tokens=decode_tokens
    )


def save(folder, name):
    (folder / name).write_bytes(prometheus_client.generate_latest(prometheus_client.REGISTRY))


def main():
    folder = Path(sys.argv[1])
    for name in ("get_schedule", "get_observability", "get_serving"):
        setattr(sglang_metrics, name, Settings)
    sglang_metrics.exports_expert_balancedness_to_prometheus = lambda: False

    # --enable-metrics-for-all-schedulers with TP 2: both ranks export the same numbers.
    scheduler = collector(labels())
    for rank in (0, 1):
        scheduler.labels = labels(tp_rank=rank)
        report(scheduler, running=12, queued=3, decode_tokens=4000)
        for with_graph in (*[True] * 7, False):
            scheduler.increment_decode_cuda_graph_pass(with_graph)
        scheduler.increment_retracted_reqs(2, 100, 50)
    save(folder, "tp2.metrics.txt")

    # DP 2: each replica has its own numbers.
    scheduler = collector(labels(dp_rank=0))
    report(scheduler, running=12, queued=3, decode_tokens=4000)
    scheduler.labels = labels(dp_rank=1)
    report(scheduler, 5, 2, 1700, gen_throughput=310.25, spec_accept_length=2.75)
    save(folder, "dp2.metrics.txt")

    # --enable-priority-scheduling: scheduler gauges and counters of the HTTP side.
    scheduler = collector(labels(priority=""))
    report(scheduler, running=12, queued=5, decode_tokens=4000, by_priority={0: 9, 10: 3})
    shared = {"model_name": "models/target", "engine_type": "unified"}
    tokenizer = sglang_metrics.TokenizerMetricsCollector(labels={**shared, "priority": ""})
    for priority, streaming, tokens in (
        ("0", "false", 100),
        ("0", "true", 40),
        ("10", "false", 60),
    ):
        mine = {**shared, "priority": priority}
        tokenizer.generation_tokens_total.labels(**mine, is_streaming=streaming).inc(tokens)
        tokenizer.spec_verify_calls_total.labels(**mine).inc(tokens // 2)
    save(folder, "priority.metrics.txt")


if __name__ == "__main__":
    main()
