"""What a window of load and samples says, and why it may not be compared."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.bench_cells import obstacles
from controlplane.bench_records import BenchPoint
from controlplane.benchrun_window import Load, Window, measured
from controlplane.load_reports import FlowReport, FlowRequest
from engine_patch.contract import Identity, TierInfo, Versions
from engine_patch.contract_words import OffKind
from store.observations import EngineFacts, PluginStatus, Sample, Source

BEGIN, END = 10_000.0, 14_000.0


def facts(cap: int = 64, graphs: tuple[int, ...] = (1, 2, 4)) -> EngineFacts:
    tiers = tuple(
        TierInfo(
            name=name, num_steps=steps, topk=1, num_draft_tokens=steps + 1,
            alloc_len=steps + 1, graph_batch_sizes=graphs,
        )
        for name, steps in (("off", 0), ("s3k1d4", 3))
    )  # fmt: skip
    return EngineFacts(
        boot_id="b1",
        plugin=PluginStatus.PRESENT,
        versions=Versions(engine="sglang", engine_version="0.5.23", plugin_version="1"),
        identity=Identity(model="m", max_running_requests=cap, attention_backend="fa3", dp_size=1),
        tiers=tiers,
        off_kind=OffKind.PLAIN_PATH,
    )


def reports(tok_s: float = 800.0, clients: int = 8, **changes: Any) -> list[FlowReport]:
    """Twenty seconds of a steady load, one request of 400 ms ending with each report."""
    return [
        FlowReport(
            **{
                "at_ms": at,
                "tokens": round(tok_s * at / 1000),
                "in_flight": clients,
                "decoding": clients,
                "warm": clients,
                "finished": (
                    FlowRequest(
                        sent_ms=at - 400, first_ms=at - 360, done_ms=at, output_tokens=41,
                        accept_length=2.5, verify_steps=16,
                    ),
                ),
                "cpu_s": 0.02 * at / 1000,
                "lags_ms": (0.5, 1.0),
            }
            | changes
        )
        for at in range(0, 20_001, 100)
    ]  # fmt: skip


def samples(tok_s: float = 800.0, running: int = 8, **changes: Any) -> list[Sample]:
    return [
        Sample(
            **{
                "engine_id": "e1", "seq": number, "at_utc_ms": at, "at_mono_ms": at,
                "clock_id": "c", "latency_ms": 1.0, "source": Source.SPECULATION, "boot_id": "b1",
                "concurrency": running, "queued": 0, "prefilling": 0,
                "decode_tokens": round(tok_s * at / 1000), "decode_steps": at // 10,
                "retractions": 3, "graph_misses": 7, "engine_tier": "s3k1d4",
            }
            | {name: value(at) if callable(value) else value for name, value in changes.items()}
        )
        for number, at in enumerate(range(0, 20_001, 250))
    ]  # fmt: skip


def point(
    tier: str = "s3k1d4",
    load: Load | None = None,
    told: EngineFacts | None = None,
    seen: list[FlowReport] | None = None,
    engine: list[Sample] | None = None,
    **changes: Any,
) -> BenchPoint:
    given = {"begin_ms": BEGIN, "end_ms": END, "pinned_ms": 5000.0, "input_len": 16}
    window = Window(tier=tier, load=load or Load(8), **given | changes)
    made = measured(
        window,
        told or facts(),
        reports() if seen is None else seen,
        samples() if engine is None else engine,
    )
    assert made is not None
    return made


def test_speed_and_times_come_from_the_steady_window_alone() -> None:
    before = reports(100)[:100]
    seen = [*before, *(r.model_copy(update={"tokens": 5000 + r.tokens}) for r in reports()[100:])]
    made = point(seen=seen)
    assert made.tok_s == pytest.approx(800, rel=0.01)
    assert made.seconds == pytest.approx(4.0)
    assert made.ttft_s == pytest.approx(0.040)
    assert made.tpot_s == pytest.approx(0.360 / 40)
    assert made.accept_length == pytest.approx(2.5)
    assert (made.cap, made.running, made.queued) == (64, 8.0, 0.0)
    assert (made.requests, made.failed) == (40, 0)
    assert (made.graph_misses, made.retractions) == (0, 0)
    assert obstacles(made) == ()


def test_requests_that_lived_through_another_tier_do_not_tell_the_accept_length() -> None:
    late = point(
        pinned_ms=BEGIN - 10,
        engine=samples(accept_length=3.0, accept_tier="s3k1d4", accept_requests=9),
        seen=[
            r.model_copy(update={"finished": (r.finished[0].model_copy(update={"sent_ms": 0.0}),)})
            for r in reports()
        ],
    )
    assert late.accept_length == pytest.approx(3.0)
    assert late.tpot_s is None
    assert point(tier="off", engine=samples(engine_tier="off")).accept_length is None


def test_a_queue_that_stands_is_told_and_a_request_that_has_just_come_is_none() -> None:
    capped = point(load=Load(80), told=facts(cap=64), engine=samples(running=64, queued=16))
    assert capped.queued == 16.0
    assert any("16.0 requests waited" in text for text in obstacles(capped))
    passing = point(engine=samples(queued=lambda at: 1 if at % 500 else 0))
    assert passing.queued == 0.0


def test_what_spoils_a_window_is_named() -> None:
    misses = point(engine=samples(graph_misses=lambda at: at // 1000))
    assert misses.graph_misses == 4
    assert (
        point(told=facts(graphs=()), engine=samples(graph_misses=lambda at: at)).graph_misses
        is None
    )
    assert point(engine=samples(retractions=lambda at: at // 2000)).retractions == 2
    mixed = point(engine=samples(engine_tier=lambda at: "off" if at > 13_000 else "s3k1d4"))
    assert any("the engine ran off for a part" in text for text in mixed.not_comparable)
    again = point(engine=samples(boot_id=lambda at: "b1" if at < 12_000 else "b2"))
    assert any("restarted" in text for text in again.not_comparable)
    others = point(engine=samples(running=14))
    assert any("6 requests of others" in text for text in others.not_comparable)
    slow = point(engine=samples(simulation_lag=0.031))
    assert any("fell 3.1 % behind" in text for text in slow.not_comparable)
    cold = point(ramped=False)
    assert any("not all of 8 clients had a first token" in text for text in cold.not_comparable)
    wrong = [
        r.model_copy(
            update={"finished": (FlowRequest(sent_ms=0, done_ms=r.at_ms, error="HTTP 500"),)}
        )
        for r in reports()
    ]
    assert point(seen=wrong).failed == 40


@pytest.mark.parametrize(
    ("changes", "engine_tok_s", "words"),
    [
        ({"lags_ms": (30.0, 30.0)}, 800.0, "30.0 ms late on average, 8 % of a request's time"),
        ({"lags_ms": (30.0, 30.0)}, 1000.0, "made 1000 tok/s, the load generator read 800 tok/s"),
    ],
)
def test_a_point_whose_client_was_the_bottleneck_is_never_the_servers(
    changes: dict[str, Any], engine_tok_s: float, words: str
) -> None:
    made = point(seen=reports(**changes), engine=samples(engine_tok_s))
    assert made.client_bound
    assert any(words in text for text in made.not_comparable)
    assert any("the load generator was the bottleneck" in text for text in obstacles(made))


def test_tokens_that_wait_in_the_server_are_not_held_against_the_load_generator() -> None:
    made = point(engine=samples(1000.0))
    assert not made.client_bound
    (reason,) = obstacles(made)
    assert (
        "the engine made 1000 tok/s, 800 tok/s arrived, and the load generator used only" in reason
    )
    assert "a longer --stream-interval" in reason  # whatever it was: 4 did not suffice for chains


def test_a_generator_that_uses_a_whole_core_is_the_bottleneck() -> None:
    busy = [r.model_copy(update={"cpu_s": 0.95 * r.at_ms / 1000}) for r in reports()]
    assert any("used 95 % of a core" in text for text in point(seen=busy).not_comparable)


def test_a_single_late_wake_up_in_a_closed_loop_is_not_held_against_it() -> None:
    seen = reports()
    seen[120] = seen[120].model_copy(update={"lags_ms": (90.0,)})
    assert not point(seen=seen).client_bound
    poisson = point(
        load=Load(0, 3.0), seen=[r.model_copy(update={"lags_ms": (90.0,)}) for r in seen]
    )
    assert any("arrivals were 90 ms late" in text for text in poisson.not_comparable)


def test_a_window_that_saw_a_part_of_a_request_is_not_compared() -> None:
    # 800 tok/s for 8 clients: 600 tokens take six seconds, the window has four.
    quiet = [report.model_copy(update={"finished": ()}) for report in reports()]
    (reason,) = point(seen=quiet, mean_output=600).not_comparable
    assert "a window of 4.0 s saw only a part of a request, which takes about 6.0 s" in reason
    assert point(seen=quiet, mean_output=400).not_comparable == ()
    # Forty requests ended in it: eight clients spread over their requests show all of one.
    assert point(mean_output=600).not_comparable == ()


def test_with_arrivals_the_concurrency_is_what_ran() -> None:
    made = point(load=Load(0, 3.0), engine=samples(running=5))
    assert (made.concurrency, made.rate_s, made.arrivals) == (5, 3.0, "poisson")


def test_a_window_without_a_token_is_no_run() -> None:
    window = Window(tier="off", load=Load(1), begin_ms=BEGIN, end_ms=END, pinned_ms=0)
    assert measured(window, facts(), [], []) is None
    still = [r.model_copy(update={"tokens": 5}) for r in reports()]
    assert measured(window, facts(), still, samples()) is None
