"""The embedded engine's scheduler on virtual time."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_patch.contract_words import Mode, OffFlavour, OffKind, SwitchReason
from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.closed_loop import run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig, Kind, Pass
from engine_patch.embedded.requests import Request
from engine_patch.embedded.table import load
from engine_patch.tier import OFF, Boundary, Thresholds, TierShape
from engine_patch.wire import RankCommand

TABLE = load("fa3")
CHAIN = "s3k1d4"
TIERS = (OFF, "s1k1d2", CHAIN)


def config(**changes: object) -> EngineConfig:
    return replace(EngineConfig(table=TABLE), **changes)  # type: ignore[arg-type]


def burst(engine: Engine, count: int, prompt: int = 128, output: int = 64) -> list[Request]:
    return [engine.submit(Request(prompt, output, arrival_ms=engine.now_ms)) for _ in range(count)]


def drain(engine: Engine) -> list[Request]:
    done = []
    while (due := engine.next_event_ms) is not None:
        done += engine.advance(due)
    return done


def conserved(engine: Engine) -> None:
    """Slots are never negative, never more than there are, and belong to somebody."""
    kv = engine.kv
    prefilling = engine.current.requests if engine.prefilling and engine.current else []
    holders = [*engine.running, *prefilling]
    partial = sum(request.prefilled for request in engine.waiting)
    assert kv.committed == sum(request.context for request in holders) + partial
    assert kv.requests == len(holders)
    assert kv.reserve == len(holders) * kv.per_request
    assert min(kv.committed, kv.evictable, kv.reserve, kv.held) >= 0
    if not kv.held or (engine.current is not None and engine.current.kind is Kind.DECODE):
        # Slots taken away from outside are made up for at the head of the next decode step.
        assert kv.committed + kv.held + kv.reserve + kv.evictable <= kv.capacity
    assert len(engine.running) <= engine.config.max_running_requests


commands = st.sampled_from(
    [
        RankCommand(mode=Mode.OFF),
        RankCommand(mode=Mode.ON),
        RankCommand(mode=Mode.ON, tier="s1k1d2"),
        RankCommand(mode=Mode.ON, tier=CHAIN),
        RankCommand(
            mode=Mode.AUTO,
            thresholds=Thresholds(
                tiers=(CHAIN, "s1k1d2", OFF),
                boundaries=(Boundary(up_at=3, down_at=1), Boundary(up_at=6, down_at=4)),
                min_dwell_steps=2,
            ),
        ),
    ]
)
requests = st.tuples(st.integers(1, 200), st.integers(1, 80))
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), requests),
        st.tuples(st.just("advance"), st.floats(0, 400)),
        st.tuples(st.just("command"), commands),
        st.tuples(st.just("hold"), st.integers(0, 300)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    happenings,
    st.integers(330, 1500),
    st.booleans(),
    st.integers(1, 12),
    st.sampled_from([64, 8192]),
)
def test_kv_slots_are_conserved_and_all_returned_at_idle(
    story: list[tuple[str, object]], slots: int, follows: bool, cap: int, chunk: int
) -> None:
    prefill = TABLE.prefill.model_copy(update={"chunk_tokens": chunk})
    engine = Engine(
        config(
            table=TABLE.model_copy(update={"prefill": prefill}),
            kv_slots=slots,
            reserve_follows=follows,
            max_running_requests=cap,
        ),
        seed=3,
    )
    sent: list[Request] = []
    left: list[Request] = []
    for what, value in story:
        if what == "submit" and isinstance(value, tuple):
            prompt, output = value
            request = Request(prompt, output, arrival_ms=engine.now_ms, ignore_eos=bool(prompt % 2))
            sent.append(engine.submit(request))
        elif what == "command" and isinstance(value, RankCommand):
            engine.command(value)
        elif what == "hold" and isinstance(value, int):
            engine.hold(value)
        elif isinstance(value, float):
            target = engine.now_ms + value
            while (due := engine.next_event_ms) is not None and due <= target:
                left += engine.advance(due)
                conserved(engine)
            left += engine.advance(target)
    engine.hold(0)
    while (due := engine.next_event_ms) is not None:
        left += engine.advance(due)
        conserved(engine)
    assert engine.kv.committed == engine.kv.requests == engine.kv.reserve == 0
    assert sorted(map(id, left)) == sorted(map(id, sent))
    assert all(request.emitted == request.output for request in left if not request.failure)


def test_the_reserve_is_that_of_the_active_tier_and_off_gives_it_back() -> None:
    engine = Engine(config())
    burst(engine, 8, output=400)
    engine.advance(200)
    assert engine.kv.reserve == 8 * TierShape.parse(CHAIN).reserve() == 8 * 8
    engine.command(RankCommand(mode=Mode.OFF))
    engine.advance(300)
    assert engine.chooser.tier == OFF
    assert engine.kv.reserve == 8 * 2
    assert engine.chooser.journal[-1].reserve_returned == 6


def test_the_reserve_stays_where_it_is_configured_to() -> None:
    engine = Engine(config(reserve_follows=False))
    burst(engine, 8, output=400)
    engine.command(RankCommand(mode=Mode.OFF))
    engine.advance(300)
    assert engine.chooser.tier == OFF
    assert engine.kv.reserve == 8 * 8
    assert engine.chooser.journal[-1].reserve_returned == 0


def test_a_move_up_without_free_slots_is_refused_and_nothing_moves() -> None:
    engine = Engine(config(launch_tier=OFF, kv_slots=1000, max_running_requests=8))
    burst(engine, 6, prompt=100, output=60)
    engine.advance(150)
    engine.hold(engine.kv.free - 10)
    answer = engine.command(RankCommand(mode=Mode.ON, tier=CHAIN))
    assert not answer.applied
    assert answer.message.startswith("kv_short: tier s3k1d4 needs 36 more KV slots, 10 are free")
    assert (answer.needed_slots, answer.free_slots) == (36, 10)
    engine.advance(200)
    assert engine.chooser.tier == OFF


def test_slots_that_run_short_retract_the_requests_with_the_least_output() -> None:
    engine = Engine(config(kv_slots=900, launch_tier=OFF))
    first = engine.submit(Request(100, 300, arrival_ms=0, ignore_eos=False))
    second = engine.submit(Request(100, 300, arrival_ms=100, ignore_eos=False))
    engine.advance(600)
    assert len(engine.running) == 2
    engine.hold(500)
    engine.advance(700)
    assert engine.books.retractions == 1
    assert (first.retractions, second.retractions) == (0, 1)
    assert list(engine.waiting) == [second]
    engine.hold(0)
    drain(engine)
    assert first.emitted == second.emitted == 300
    assert engine.books.prefill_tokens > 200, "the retracted request was computed again"


def test_a_last_request_that_cannot_fit_is_given_up_with_a_reason() -> None:
    engine = Engine(config(kv_slots=400, launch_tier=OFF))
    request = engine.submit(Request(100, 200, arrival_ms=0))
    engine.advance(200)
    engine.hold(300)
    assert drain(engine) == [request]
    assert "out of KV slots" in request.failure
    assert engine.kv.committed == 0


def test_a_request_that_could_never_run_is_refused() -> None:
    engine = Engine(config(kv_slots=300))
    with pytest.raises(ValueError, match="need 308 KV slots, this engine has 300"):
        engine.submit(Request(200, 100, arrival_ms=0))
    with pytest.raises(ValueError, match="at least one"):
        engine.submit(Request(0, 1, arrival_ms=0))


def test_no_more_requests_run_than_the_cap_and_the_rest_wait() -> None:
    engine = Engine(config(max_running_requests=4))
    burst(engine, 10)
    engine.advance(200)
    assert len(engine.running) == 4
    assert engine.queued == 6
    assert len(drain(engine)) == 10


def test_a_plain_server_leaves_one_slot_of_its_cap_empty() -> None:
    engine = Engine(EngineConfig.plain_server(TABLE, max_running_requests=4))
    burst(engine, 4)
    engine.advance(200)
    assert len(engine.running) == 3


def test_waiting_requests_are_prefilled_before_anything_is_decoded() -> None:
    kinds: list[Kind] = []
    engine = Engine(config(), on_pass=lambda done: kinds.append(done.kind))
    burst(engine, 3)
    engine.advance(40)
    burst(engine, 3)
    engine.advance(80)
    at = kinds.index(Kind.DECODE)
    assert kinds[:at] == [Kind.PREFILL]
    assert kinds[at + 1 :].count(Kind.PREFILL) == 1


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    passes: list[Pass] = []
    engine = Engine(config(), on_pass=passes.append)
    engine.submit(Request(20_000, 2, arrival_ms=0))
    drain(engine)
    chunks = [done.tokens for done in passes if done.kind is Kind.PREFILL]
    assert chunks == [8192, 8192, 3616]


def test_a_step_takes_the_tables_time_for_its_batch_and_tier() -> None:
    passes: list[Pass] = []
    engine = Engine(config(), on_pass=passes.append)
    burst(engine, 64)
    engine.advance(1000)
    steps = [done for done in passes if done.kind is Kind.DECODE and len(done.requests) == 64]
    expected = TABLE.column(CHAIN, OffKind.PLAIN_PATH).step_times()[64]
    assert steps
    assert all(step.end_ms - step.start_ms == pytest.approx(expected) for step in steps)


def test_accept_length_never_changes_a_step_time() -> None:
    durations = []
    for length in (1.0, 2.0, 4.0):
        passes: list[Pass] = []
        engine = Engine(config(accept_length=length), on_pass=passes.append)
        burst(engine, 16, output=200)
        engine.advance(400)
        decode = [done for done in passes if done.kind is Kind.DECODE]
        durations.append(decode[0].end_ms - decode[0].start_ms)
    assert len(set(durations)) == 1


def test_a_command_takes_effect_at_the_head_of_the_next_decode_step() -> None:
    passes: list[Pass] = []
    engine = Engine(config(), on_pass=passes.append)
    burst(engine, 8)
    engine.advance(100)
    under_way = engine.current
    engine.command(RankCommand(mode=Mode.OFF, epoch=3, generation=7))
    assert under_way is engine.current
    assert under_way is not None
    assert under_way.tier == CHAIN
    engine.advance(under_way.end_ms)
    assert engine.current is not None
    assert engine.current.tier == OFF
    entry = engine.chooser.journal[-1]
    assert (entry.from_tier, entry.to_tier, entry.reason) == (CHAIN, OFF, SwitchReason.COMMAND)
    assert (entry.epoch, entry.generation, entry.batch) == (3, 7, 8)
    assert engine.switch_times == {1: under_way.end_ms}


def test_an_idle_engine_obeys_at_once() -> None:
    engine = Engine(config())
    engine.command(RankCommand(mode=Mode.OFF))
    assert engine.chooser.tier == OFF


def test_in_auto_the_engine_follows_the_load_by_its_thresholds() -> None:
    engine = Engine(config())
    order = Thresholds(
        tiers=(CHAIN, OFF), boundaries=(Boundary(up_at=32, down_at=8),), min_dwell_steps=4
    )
    engine.command(RankCommand(mode=Mode.AUTO, thresholds=order))
    run_closed_loop(engine, [(64, 64)] * 16, clients=4)
    assert engine.chooser.switches == 0
    run_closed_loop(engine, [(64, 64)] * 128, clients=64)
    run_closed_loop(engine, [(64, 64)] * 16, clients=4)
    reasons = [entry.reason for entry in engine.chooser.journal]
    assert reasons[0] is SwitchReason.BATCH_UP
    assert reasons[-1] is SwitchReason.BATCH_DOWN


def test_off_in_cold_flavour_marks_requests_and_keeps_them_out_of_the_prefix_cache() -> None:
    engine = Engine(config())
    burst(engine, 4)
    engine.advance(100)
    engine.command(RankCommand(mode=Mode.OFF, off_flavour=OffFlavour.COLD))
    engine.advance(150)
    assert engine.cold_requests == 4
    drain(engine)
    assert engine.cold_requests == 0
    assert engine.kv.evictable == 0


def test_finished_requests_stay_as_evictable_cache_until_slots_are_needed() -> None:
    engine = Engine(config(kv_slots=1000))
    burst(engine, 2, prompt=200, output=50)
    drain(engine)
    assert engine.kv.evictable == 500
    burst(engine, 3, prompt=200, output=50)
    engine.advance(engine.now_ms + 100)
    assert engine.kv.evictable <= 1000 - 3 * 200
    assert engine.books.retractions == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)), min_size=1, max_size=30))
def test_counters_only_rise(work: list[tuple[int, int]]) -> None:
    engine = Engine(config(kv_slots=400))
    for prompt, output in work:
        engine.submit(Request(prompt, output, arrival_ms=engine.now_ms, ignore_eos=False))
    names = (
        "decode_tokens",
        "decode_steps",
        "verify_steps",
        "prefill_tokens",
        "finished",
        "retractions",
        "passes",
    )
    before = [0] * len(names)
    while (due := engine.next_event_ms) is not None:
        engine.advance(due)
        now = [getattr(engine.books, name) for name in names]
        assert all(new >= old for new, old in zip(now, before, strict=True))
        before = now
    assert engine.books.finished == len(work)
    # The first token of each request comes from its prefill.
    first_tokens = len(work) + engine.books.retractions
    assert engine.books.decode_tokens == sum(output for _, output in work) - first_tokens


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def run(seed: int) -> list[tuple[float, int]]:
        engine = Engine(config(), seed)
        work = [(64, 40 + 7 * place % 90) for place in range(80)]
        run_closed_loop(engine, work, clients=16)
        return [(engine.now_ms, engine.books.verify_steps)]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_the_window_holds_what_the_engine_accepted() -> None:
    engine = Engine(config(accept_length=3.0, accept_mode=AcceptMode.EXACT))
    burst(engine, 8, output=200)
    engine.advance(600)
    window = engine.chooser.window.record()
    assert window.length == 3.0
    assert window.per_position == (1.0, 1.0, 0.0)


def test_aborting_returns_every_request_and_every_slot() -> None:
    engine = Engine(config(max_running_requests=8))
    sent = burst(engine, 20)
    engine.advance(10)
    gone = engine.abort_all("restarted")
    assert sorted(map(id, gone)) == sorted(map(id, sent))
    assert all(request.failure == "restarted" and request.done for request in gone)
    assert engine.kv.committed == engine.kv.reserve == 0
    assert engine.idle


def test_a_cut_request_leaves_with_its_next_token() -> None:
    engine = Engine(config())
    (request,) = burst(engine, 1, output=5000)
    engine.advance(200)
    engine.cut(request)
    assert drain(engine) == [request]
    assert engine.now_ms < 300


def test_slots_given_back_let_a_waiting_request_in() -> None:
    engine = Engine(config(kv_slots=500))
    engine.hold(400)
    (request,) = burst(engine, 1)
    engine.advance(100)
    assert list(engine.waiting) == [request]
    assert engine.next_event_ms is None
    engine.hold(0)
    assert drain(engine) == [request]


def test_more_running_requests_than_the_table_covers_are_refused() -> None:
    with pytest.raises(ValueError, match="ends at 256 running requests"):
        config(max_running_requests=512)


def test_thirty_seconds_at_256_cost_under_three_seconds_of_cpu() -> None:
    engine = Engine(config())
    work = [(128, 64 + 37 * place % 400) for place in range(20_000)]
    for prompt, output in work[:256]:
        engine.submit(Request(prompt, output, arrival_ms=0))
    left = iter(work[256:])
    start = time.process_time()
    while (due := engine.next_event_ms) is not None and due <= 30_000:
        for _ in engine.advance(due):
            prompt, output = next(left)
            engine.submit(Request(prompt, output, arrival_ms=engine.now_ms))
    spent = time.process_time() - start
    print(f"30 s at 256: {spent:.2f} s of CPU, {engine.books.decode_tokens} tokens")
    assert spent < 3.0
