"""The controller on the embedded engine in virtual time: its scheduler and front, no network."""

from __future__ import annotations

import pytest

from engine_patch.contract_words import Mode, OffKind
from engine_patch.tier import OFF, Boundary
from store.policies import HysteresisPolicy, Stance
from store.records import Outcome, Reason
from tests.controlplane_script import override
from tests.controlplane_virtual import Bench

# A threshold far below the true crossing, so that few clients do: no change is taken back for it.
TWO = HysteresisPolicy(
    tiers=("s3k1d4", OFF), boundaries=(Boundary(up_at=12, down_at=6),), judge_margin=0.9
)


def test_concurrency_up_and_down_switches_once_each_way_and_the_engine_confirms() -> None:
    bench = Bench(policy=TWO)
    bench.run(10, 1)
    assert bench.run(15, 16).confirmed == OFF
    assert bench.run(15, 1).confirmed == "s3k1d4"
    assert bench.switched == [("s3k1d4", OFF), (OFF, "s3k1d4")]
    assert {one.outcome for one in bench.decisions.values()} == {Outcome.CONFIRMED}
    assert all(not tick.alarms for tick in bench.ticks)


def test_a_measured_engine_starts_active_on_thresholds_from_its_own_table() -> None:
    bench = Bench(tiers=(OFF, "s3k1d4"))
    assert bench.config.policy.stance is Stance.ACTIVE
    policy = bench.config.policy.policy
    assert isinstance(policy, HysteresisPolicy)
    assert policy.tiers[-1] == OFF
    assert 64 < policy.boundaries[-1].up_at <= 128


@pytest.mark.parametrize("clients", [4, 200])
def test_the_default_policy_ends_in_the_better_of_the_fixed_modes(clients: int) -> None:
    rates: dict[str | None, float] = {}
    for tier in ("s3k1d4", OFF):
        bench = Bench(tiers=(OFF, "s3k1d4"))
        mode, name = (Mode.OFF, None) if tier == OFF else (Mode.ON, tier)
        bench.person(override(mode, tier=name, length_s=600.0))
        bench.run(20, clients)
        done = bench.engine.books.decode_tokens
        bench.run(20, clients)
        rates[tier] = bench.engine.books.decode_tokens - done
    bench = Bench(tiers=(OFF, "s3k1d4"))
    bench.run(20, clients)
    assert bench.ticks[-1].confirmed == max(rates, key=lambda tier: rates[tier])


def test_a_slow_off_is_never_picked_however_busy_it_gets() -> None:
    bench = Bench("triton", off=OffKind.ONE_TOKEN_VERIFY)
    bench.run(60, 200)
    assert all(tick.confirmed != OFF for tick in bench.ticks)
    assert all(any("0.25 to 0.31" in text for text in tick.warnings) for tick in bench.ticks)


@pytest.mark.parametrize("clients", [1, 16])
def test_an_override_is_obeyed_at_the_next_poll_and_ends_on_time(clients: int) -> None:
    bench = Bench(policy=TWO)
    bench.run(10, clients)
    wanted = bench.ticks[-1].confirmed
    other = "s3k1d4" if wanted == OFF else OFF
    mode, tier = (Mode.OFF, None) if other == OFF else (Mode.ON, other)
    asked = override(mode, tier=tier, length_s=20.0, at_utc_ms=bench.utc_ms)
    bench.person(asked)
    bench.run(1, clients)
    assert bench.ticks[-1].confirmed == other
    bench.run(18.5, clients)
    assert bench.ticks[-1].confirmed == other
    bench.run(2.5, clients)
    assert bench.ticks[-1].confirmed == wanted
    ended = [t.override for t in bench.ticks if t.override and t.override.ended_utc_ms is not None]
    assert len(ended) == 1
    assert ended[0].ended_utc_ms == asked.expires_utc_ms


def test_a_restarted_engine_is_brought_back_under_load() -> None:
    bench = Bench(policy=TWO)
    bench.run(15, 16)
    assert bench.ticks[-1].confirmed == OFF
    bench.boot()
    assert bench.run(0.5, 16).verdict.reason is Reason.RESTART
    bench.run(5, 16)
    assert bench.ticks[-1].confirmed == OFF
    assert bench.decisions[max(bench.decisions)].reason is Reason.RESTART
    rates = [tick.decode_tok_s for tick in bench.ticks if tick.decode_tok_s is not None]
    assert min(rates) >= 0


def test_poor_acceptance_ends_speculation_and_is_tried_again() -> None:
    policy = TWO.model_copy(
        update={"min_accept_length": {"s3k1d4": 1.5}, "accept_hold_s": 5.0, "probe_after_s": 20.0}
    )
    bench = Bench(policy=policy, accept_length=1.1)
    bench.run(20, 4)
    assert bench.ticks[-1].confirmed == OFF
    bench.engine.set_accept_length(2.5)
    bench.run(60, 4)
    assert bench.ticks[-1].confirmed == "s3k1d4"
    reasons = [one.reason for _, one in sorted(bench.decisions.items())]
    assert reasons == [Reason.ACCEPT_FLOOR, Reason.PROBE]


def test_full_kv_slots_send_speculation_off_at_once() -> None:
    bench = Bench(policy=TWO, kv_slots=20_000)
    bench.run(10, 4)
    bench.engine.hold(18_000)
    bench.run(1.5, 4)
    assert bench.ticks[-1].confirmed == OFF
    assert bench.decisions[max(bench.decisions)].reason in (
        Reason.KV_PRESSURE,
        Reason.RETRACTION,
    )
