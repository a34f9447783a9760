"""The plugin in a real server: tiers, commands, thresholds, lease, and never another token."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from engine_patch.contract_words import Mode, OffKind, SwitchReason
from tests.engine import paged_slots
from tests.engine.conftest import MANY, NEW_TOKENS
from tests.engine.cpu_engine import PROMPTS, CpuEngine
from tests.engine.plugin_client import PluginClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

TIERS = ("off", "s1k1d2", "s3k1d4")
THRESHOLDS = {
    "tiers": ["s3k1d4", "off"],
    "boundaries": [{"up_at": 5, "down_at": 2}],
    "min_dwell_steps": 8,
}


@pytest.fixture(scope="module")
def engine(
    work: Path, expected: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PluginClient]:
    """An adaptive server that gauges every decode step, with pages of 16 slots and prefill in
    chunks; ``expected`` comes first, so that one server runs at a time."""
    args = ["--enable-metrics", "--decode-log-interval", "1"]
    args += ["--page-size", "16", "--chunked-prefill-size", "64"]
    server = CpuEngine(
        work,
        "switching",
        tiers="off,s1k1d2,s2k4d8",
        polls=True,
        args=args,
        env={"SGLANG_PLUGINS": f"specdeck,{paged_slots.NAME}"},
        paths=[paged_slots.install(tmp_path_factory.mktemp("pages"))],
    )
    with server, PluginClient(server) as client:
        yield client


def _gauge(engine: PluginClient, name: str) -> float:
    text = engine.http.get("/metrics").text
    match = re.search(rf"^sglang:{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert match is not None, f"no {name} in /metrics"
    return float(match[1])


def _verify_steps(answers: list[dict[str, object]]) -> list[tuple[int, int]]:
    """Tokens and verify steps of each answer, as SGLang itself counts them."""
    metas = [answer["meta_info"] for answer in answers]
    return [(m["completion_tokens"], m["spec_verify_ct"]) for m in metas]  # type: ignore[index]


def test_before_the_first_batch_everything_is_known(engine: PluginClient) -> None:
    state = engine.state()
    assert [tier.name for tier in state.tiers] == list(TIERS)
    assert state.tiers[0].off_kind is OffKind.PLAIN_PATH
    assert [tier.alloc_len for tier in state.tiers] == [1, 2, 4]
    assert state.tiers[0].build_s is not None
    assert (state.mode, state.launch_tier, state.desired_tier) == (Mode.ON, "s3k1d4", "s3k1d4")
    assert (state.epoch, state.generation, state.claim, state.lease) == (0, 0, None, None)
    assert state.journal == ()
    (replica,) = state.replicas
    assert [(rank.observed, rank.tier) for rank in replica.ranks] == [(True, "s3k1d4")]
    assert (replica.running, replica.queued, replica.kv.capacity) == (0, 0, 16384)
    assert state.versions.engine_version == "0.5.23"
    assert state.identity.requested_max_running_requests == 16
    assert state.identity.cap_origin == "flag"
    assert state.identity.page_size == 16


def test_a_tree_that_was_asked_for_is_left_out_with_its_reason(engine: PluginClient) -> None:
    capabilities = {c.name: c for c in engine.state().capabilities}
    assert capabilities["switching"].available
    assert not capabilities["tree_tiers"].available
    assert "s2k4d8 has topk 4" in capabilities["tree_tiers"].reason
    assert "--speculative-eagle-topk 4" in capabilities["all_tiers"].reason


def test_an_idle_engine_keeps_its_numbers_fresh(engine: PluginClient) -> None:
    engine.wait(lambda: engine.replica().running == 0, "idle")
    first = engine.replica()
    engine.wait(lambda: engine.replica().sample > first.sample, "a new sample")
    second = engine.replica()
    assert second.decode_steps == first.decode_steps
    # Published every 200 ms: on a busy machine later, but never as old as the server.
    engine.wait(lambda: engine.replica().age_ms < 600, "a fresh sample")


def test_every_commanded_tier_is_run_confirmed_and_changes_what_sglang_does(
    engine: PluginClient, expected: dict[str, list[int]]
) -> None:
    for mode, tier, steps in (("off", None, 0), ("on", "s1k1d2", 1), ("on", "s3k1d4", 3)):
        answer = engine.command(mode, tier=tier)
        name = tier or "off"
        assert [(r["applied"], r["tier"]) for r in answer["replicas"]] == [(True, name)]
        engine.wait_runs(name)
        before = engine.replica()
        answers = engine.engine.generate(PROMPTS[:2], new_tokens=40, concurrency=2)
        engine.wait(lambda: engine.replica().running == 0, "idle")
        after = engine.replica()
        assert _gauge(engine, "spec_num_steps") == steps
        verified = after.verify_steps - before.verify_steps
        decoded = after.decode_steps - before.decode_steps
        assert decoded > 0
        assert verified == (0 if steps == 0 else decoded)
        for tokens, verifies in _verify_steps(answers):
            # The first token comes from the prefill.
            assert (tokens - 1 == verifies) if steps == 0 else (verifies < tokens - 1)
        assert after.decode_tokens - before.decode_tokens >= 2 * 39
    log = engine.engine.log
    assert re.findall(r"Switch adaptive runtime state: steps (\d) -> (\d)", log)[-3:] == [
        ("3", "0"),
        ("0", "1"),
        ("1", "3"),
    ]
    assert [(e.from_tier, e.to_tier, e.reason) for e in engine.state().journal[-3:]] == [
        ("s3k1d4", "off", SwitchReason.COMMAND),
        ("off", "s1k1d2", SwitchReason.COMMAND),
        ("s1k1d2", "s3k1d4", SwitchReason.COMMAND),
    ]


def test_on_without_a_tier_means_the_last_speculating_one(engine: PluginClient) -> None:
    engine.command("on", tier="s1k1d2")
    engine.wait_runs("s1k1d2")
    engine.command("off")
    engine.wait_runs("off")
    engine.command("on")
    engine.wait_runs("s1k1d2")


def test_the_accept_window_belongs_to_one_tier(engine: PluginClient) -> None:
    for tier, most in (("s3k1d4", 4.0), ("s1k1d2", 2.0)):
        engine.command("on", tier=tier)
        engine.wait_runs(tier)
        engine.engine.generate(PROMPTS, new_tokens=30)
        engine.wait(lambda: engine.replica().running == 0, "idle")
        window = engine.replica().accept
        assert window is not None
        assert window.tier == tier
        assert window.length is not None
        assert 1.0 < window.length <= most
        assert len(window.per_position) == int(tier[1])
        assert window.length == pytest.approx(1 + sum(window.per_position))
    engine.command("off")
    engine.wait_runs("off")
    assert engine.replica().accept is None


def test_greedy_outputs_under_constant_switching_equal_the_plain_servers(
    engine: PluginClient, expected: dict[str, list[int]]
) -> None:
    before, stop = engine.replica().switches, threading.Event()

    def switch() -> None:
        for tier in itertools.cycle(("off", "s3k1d4", "s1k1d2", "s3k1d4", "off", "s1k1d2")):
            if stop.is_set():
                return
            engine.ask_for(tier)
            time.sleep(0.01)

    switcher = threading.Thread(target=switch)
    switcher.start()
    try:
        answers = engine.engine.generate(MANY, new_tokens=NEW_TOKENS, concurrency=8)
    finally:
        stop.set()
        switcher.join()
    got = {prompt: a["output_ids"] for prompt, a in zip(MANY, answers, strict=True)}
    assert got == expected
    assert engine.replica().switches - before >= 10
    entries = engine.state().journal
    assert [entry.seq for entry in entries] == list(range(1, entries[-1].seq + 1))
    assert all(a.to_tier == b.from_tier for a, b in itertools.pairwise(entries))


def test_the_journal_can_be_read_from_a_number_on(engine: PluginClient) -> None:
    entries = engine.state().journal
    assert engine.state(since=entries[-3].seq).journal == entries[-2:]


@pytest.mark.parametrize(("tier", "slots"), [("s3k1d4", 8), ("s1k1d2", 4), ("off", 2)])
def test_kv_numbers_add_up_and_the_reserve_follows_the_tier(
    engine: PluginClient, tier: str, slots: int
) -> None:
    engine.ask_for(tier)
    engine.wait_runs(tier)
    with engine.load(MANY, clients=8, new_tokens=200):
        engine.wait(lambda: engine.replica().running == 8, "8 running")
        replica = engine.replica()
    kv = replica.kv
    assert replica.ranks[0].tier == tier
    # Twice alloc_len of the tier, for each running request.
    assert kv.reserve == slots * replica.running
    assert 0 < kv.committed < kv.capacity
    assert kv.committed + kv.reserve + kv.evictable <= kv.capacity
    engine.wait(lambda: engine.replica().running == 0, "back to idle")
    assert engine.replica().kv.reserve == 0


def test_auto_follows_the_load_once_in_each_direction(engine: PluginClient) -> None:
    engine.command("on", tier="s3k1d4")
    engine.command("auto", thresholds=THRESHOLDS)
    assert engine.state().desired_tier is None
    last = engine.replica().switches
    with engine.load(PROMPTS[:1], clients=1, new_tokens=200):
        engine.wait(lambda: engine.replica().running == 1, "1 running")
        # Long enough that all seven run before the first ends: between two requests of slow
        # clients the batch would be small for a moment, and the engine right to switch.
        with engine.load(MANY, clients=7, new_tokens=300):
            engine.wait_runs("off")
            engine.wait(lambda: engine.replica().running == 8, "8 running")
        engine.wait_runs("s3k1d4")
    up, down = engine.state(since=last).journal
    assert (up.reason, up.from_tier, up.to_tier) == (SwitchReason.BATCH_UP, "s3k1d4", "off")
    assert (down.reason, down.from_tier, down.to_tier) == (
        SwitchReason.BATCH_DOWN,
        "off",
        "s3k1d4",
    )
    assert up.batch >= 5
    assert down.batch <= 2
    assert down.step - up.step >= THRESHOLDS["min_dwell_steps"]  # type: ignore[operator]


def test_a_lease_that_ends_falls_back_to_auto_with_the_last_thresholds(
    engine: PluginClient,
) -> None:
    engine.command("auto", thresholds=THRESHOLDS)
    last = engine.replica().switches
    answer = engine.command("off", lease_s=0.4)
    assert answer["lease"]["on_lease_end"] == "auto"
    engine.wait(lambda: engine.state().mode is Mode.AUTO, "the lease ended")
    # Whether or not anybody looked in time, it was off for that long.
    engine.wait(lambda: bool(engine.state(since=last).journal), "off ran")
    assert engine.state(since=last).journal[0].to_tier == "off"
    state = engine.state()
    assert (state.lease, state.claim) == (None, None)
    assert state.thresholds is not None
    assert state.thresholds.tiers == ("s3k1d4", "off")
    engine.engine.generate(PROMPTS[:1], new_tokens=20)
    engine.wait_runs("s3k1d4")


def test_a_lease_that_ends_falls_back_to_the_launch_tier(engine: PluginClient) -> None:
    last = engine.replica().switches
    engine.command("on", tier="s1k1d2", lease_s=0.3, on_lease_end="launch")

    def entries() -> list[tuple[str, SwitchReason]]:
        return [(entry.to_tier, entry.reason) for entry in engine.state(since=last).journal]

    engine.wait(lambda: len(entries()) == 2, "there and back")
    assert entries() == [("s1k1d2", SwitchReason.COMMAND), ("s3k1d4", SwitchReason.LEASE_END)]


def test_a_lease_that_ends_may_leave_things_as_they_are(engine: PluginClient) -> None:
    engine.command("on", tier="s1k1d2", lease_s=0.3, on_lease_end="hold")
    engine.wait(lambda: engine.state().claim is None, "the claim ended")
    time.sleep(0.2)
    assert engine.runs("s1k1d2")


def test_a_renewed_lease_does_not_end(engine: PluginClient) -> None:
    engine.command("off", lease_s=20, on_lease_end="launch")
    first = engine.state().lease
    time.sleep(1.5)
    engine.command("off", lease_s=20, on_lease_end="launch")
    second = engine.state().lease
    assert first is not None
    assert second is not None
    # Counted anew: a lease that was not renewed would have lost what was slept at least.
    assert second.remaining_s > first.remaining_s - 1.5
    engine.command("off", lease_s=0.2, on_lease_end="launch")
    engine.wait(lambda: engine.state().mode is not Mode.OFF, "the lease ended")


def test_orders_are_taken_once_and_upwards_only(engine: PluginClient) -> None:
    engine.command("off")
    now = engine.state()
    order = {"epoch": now.epoch, "generation": now.generation}
    again = engine.put("off", **order)
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    other = engine.put("on", tier="s3k1d4", **order)
    assert (other.status_code, other.json()["code"]) == (409, "other_body")
    stale = engine.put("off", epoch=now.epoch, generation=now.generation - 1)
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_order")
    assert stale.json()["generation"] == now.generation
    assert engine.runs("off")


def test_a_foreign_holder_is_refused_with_the_holder_until_it_takes_over(
    engine: PluginClient,
) -> None:
    engine.command("off", lease_s=30)
    foreign = engine.put("on", holder="stranger", tier="s3k1d4")
    assert (foreign.status_code, foreign.json()["code"]) == (409, "foreign_claim")
    assert foreign.json()["claim"]["holder"] == "suite"
    assert 0 < foreign.json()["claim"]["remaining_s"] <= 30
    epoch = engine.state().epoch
    taken = engine.put("on", holder="stranger", tier="s3k1d4", takeover=True)
    assert taken.status_code == 200
    assert taken.json()["epoch"] == epoch + 1
    engine.wait_runs("s3k1d4")
    engine.command("on", takeover=True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"mode": "on", "tier": "s5k1d6"}, "built are off, s1k1d2, s3k1d4"),
        ({"mode": "on", "tier": "off"}, "use mode 'off'"),
        ({"mode": "on", "tier": "fast"}, "is no tier"),
        (
            {
                "mode": "auto",
                "thresholds": THRESHOLDS | {"boundaries": [{"up_at": 2, "down_at": 2}]},
            },
            "down_at 2 must lie below up_at 2",
        ),
        ({"mode": "off", "surprise": 1}, "surprise"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can_and_nothing_moves(
    engine: PluginClient, body: dict[str, object], words: str
) -> None:
    before = engine.state()
    answer = engine.put(**body)  # type: ignore[arg-type]
    assert answer.status_code == 422
    assert words in answer.json()["message"]
    after = engine.state()
    assert (after.mode, after.desired_tier, after.generation) == (
        before.mode,
        before.desired_tier,
        before.generation,
    )


def test_sglangs_own_internal_state_and_counters_are_left_alone(engine: PluginClient) -> None:
    engine.command("on", tier="s3k1d4")
    engine.wait_runs("s3k1d4")
    engine.engine.generate(PROMPTS[:2], new_tokens=30)
    loads = "/v1/loads?include=spec"
    before = engine.http.get(loads).json()["loads"][0]["speculative"]
    engine.command("on", tier="s3k1d4")
    assert engine.http.get(loads).json()["loads"][0]["speculative"] == before
    for server_args, updated in (({"pp_max_micro_batch_size": 8}, True), ({"unknown": 1}, False)):
        answer = engine.http.post("/set_internal_state", json={"server_args": server_args})
        assert answer.status_code == 200
        assert answer.json() == [updated]


def _scheduler(engine: PluginClient) -> psutil.Process:
    assert engine.engine.process is not None
    children = psutil.Process(engine.engine.process.pid).children(recursive=True)
    return next(c for c in children if "sglang::scheduler" in " ".join(c.cmdline()))


def test_get_answers_at_once_and_put_times_out_while_the_scheduler_is_stuck(
    engine: PluginClient,
) -> None:
    engine.command("on", tier="s3k1d4")
    engine.wait_runs("s3k1d4")
    scheduler = _scheduler(engine)
    scheduler.suspend()
    try:
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            replica = engine.replica()
            times.append(time.perf_counter() - begin)
        # The scheduler stands still, so whoever asked it would wait for ever.
        assert sorted(times)[len(times) // 2] < 1.0
        assert replica.ranks[0].tier == "s3k1d4"
        answer = engine.put("off")
        assert (answer.status_code, answer.json()["code"]) == (503, "timeout")
        state = engine.state()
        rank = state.replicas[0].ranks[0]
        # Asked for, not confirmed; and the numbers show their age.
        assert state.desired_tier == "off"
        assert rank.tier == "s3k1d4"
        assert rank.applied_generation == state.generation - 1
        assert state.replicas[0].age_ms > 1000
    finally:
        scheduler.resume()
    # The command was in the scheduler's queue.
    engine.wait_runs("off")
    engine.command("on", tier="s3k1d4")
    engine.wait_runs("s3k1d4")


def test_get_answers_during_a_prefill_and_says_so(engine: PluginClient) -> None:
    seen = set[int]()
    prompt = "the quick brown fox jumps over the lazy dog " * 60
    with httpx.Client(base_url=engine.engine.url, timeout=60) as client:
        body = {
            "text": [f"{n} {prompt}" for n in range(4)],
            "sampling_params": {"max_new_tokens": 2},
        }
        worker = threading.Thread(target=lambda: client.post("/generate", json=body))
        worker.start()
        while worker.is_alive():
            seen.add(engine.replica().prefilling)
        worker.join()
    assert max(seen) >= 1
    engine.wait(lambda: engine.replica().prefilling == 0, "prefill over")


def test_no_slot_is_lost_with_pages_of_several_slots(engine: PluginClient) -> None:
    engine.wait(lambda: engine.replica().running == engine.replica().queued == 0, "idle")
    engine.wait(lambda: engine.http.post("/flush_cache").status_code == 200, "an empty cache")
    assert engine.http.get("/v1/loads").json()["loads"][0]["num_used_tokens"] == 0


def test_the_log_names_what_was_built_and_each_switch_once(engine: PluginClient) -> None:
    lines = [line for line in engine.engine.log.splitlines() if "specdeck: " in line]
    built = [line for line in lines if "tiers off, s1k1d2, s3k1d4; launch tier s3k1d4" in line]
    assert len(built) == 1
    switched = [line for line in lines if "specdeck: tier " in line]
    assert len(switched) == engine.replica().switches
    assert not re.search(r'File ".*engine_patch', engine.engine.log)
