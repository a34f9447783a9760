"""An unpatched SGLang through ``/v1/loads`` and ``/metrics``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane import unpatched
from controlplane.loads import Loads, read_loads
from controlplane.metrics import EngineMetrics, read_metrics
from controlplane.polled import Stamp
from controlplane.server_info import read_server_info
from controlplane.unpatched import UnpatchedSeen
from engine_patch.tier import TierShape
from store.observations import PluginStatus, Sample, Source

SAMPLES = Path(__file__).parent / "samples"
STAMP = Stamp("e", 7, 1000, 50, "clock", 2.5)
CHAIN = TierShape.parse("s3k1d4")


def metrics(name: str) -> EngineMetrics:
    return read_metrics((SAMPLES / name).read_text())


def loads(name: str, **first: Any) -> Loads:
    body = json.loads((SAMPLES / name).read_text())
    body["loads"][0].update(first)
    return read_loads(json.dumps(body))


def cpu(name: str) -> tuple[EngineMetrics, Loads]:
    return metrics(f"cpu-0.5.23/{name}.metrics.txt"), loads(f"cpu-0.5.23/{name}.loads.json")


def moved(now: EngineMetrics, tokens: int = 100, **changes: Any) -> EngineMetrics:
    """The next scrape of a one-replica engine: more tokens and a new gauge window."""
    (one,) = now.replicas
    assert one.decode_tokens is not None
    assert one.gen_throughput is not None
    values = {
        "decode_tokens": one.decode_tokens + tokens,
        "gen_throughput": one.gen_throughput + 1.0,
        **changes,
    }
    return replace(now, replicas=(replace(one, **values),))


def run(
    *polls: tuple[EngineMetrics | None, Loads | None], launch: TierShape | None = CHAIN
) -> list[Sample]:
    seen, out = UnpatchedSeen(), []
    for scrape, load in polls:
        seen, sample = unpatched.observe(seen, scrape, load, launch, STAMP)
        out.append(sample)
    return out


def test_a_loaded_engine_of_0_5_17_is_seen_with_everything_it_tells() -> None:
    (sample,) = run(
        (
            metrics("h200-0.5.17/chain-acc2.0_metrics.txt"),
            loads("h200-0.5.17/chain-acc2.0_v1_loads.json"),
        )
    )
    assert sample.source is Source.METRICS
    assert (sample.concurrency, sample.replica_concurrency, sample.queued) == (64, 64, 0)
    assert (sample.decode_tokens, sample.decode_steps) == (28724, 1546)
    assert sample.kv.capacity == 861668
    assert sample.kv.committed == 16256  # the load snapshot's; the gauge is up to 40 steps older
    assert sample.kv.evictable == 38889
    assert sample.engine_tier == "s3k1d4"
    assert sample.fresh


def test_what_an_unpatched_engine_does_not_tell_is_none() -> None:
    (sample,) = run(cpu("spec-load"))
    assert sample.kv.reserve is None
    assert sample.prefilling is None
    assert sample.verify_steps is None
    assert sample.retractions is None
    assert sample.mode is None
    assert sample.lease_remaining_s is None


@pytest.mark.constructed
def test_running_requests_come_from_the_load_snapshot_not_from_the_gauge() -> None:
    # The gauge may say "8 running" for up to 30 s after the last request ended.
    stale, _ = cpu("spec-load")
    _, now = cpu("spec-just-idle")
    (sample,) = run((stale, now))
    assert stale.replicas[0].running == 8
    assert sample.concurrency == 0


def test_without_v1_loads_the_gauges_are_all_there_is() -> None:
    scrape, _ = cpu("spec-load")
    (sample,) = run((scrape, None))
    assert (sample.concurrency, sample.queued) == (8, 0)
    assert (sample.kv.capacity, sample.kv.committed) == (16384, 1710)


def test_without_metrics_there_is_load_and_nothing_else() -> None:
    _, load = cpu("spec-load")
    (sample,) = run((None, load))
    assert sample.concurrency == 8
    assert sample.decode_tokens is None
    assert sample.accept_length is None
    assert sample.engine_tier is None
    assert sample.applied == ()


def test_the_lifetime_accept_length_of_v1_loads_is_never_a_signal() -> None:
    _, load = cpu("spec-load")
    assert load.replicas[0].speculative is not None
    assert all(one.accept_length is None for one in run((None, load), cpu("spec-load")))


def test_the_last_throughput_is_never_a_speed() -> None:
    # Only counters are handed on; nothing in a sample carries gen_throughput.
    scrape, load = cpu("spec-load")
    (sample,) = run((scrape, load))
    assert scrape.replicas[0].gen_throughput == pytest.approx(1017.57, abs=0.01)
    assert "1017" not in sample.model_dump_json()


def test_a_windows_accept_length_is_handed_on_with_its_tier() -> None:
    scrape, load = cpu("spec-load")
    out = run((scrape, load), (moved(scrape, accept_length=1.7), load))
    assert [one.accept_length for one in out] == [None, 1.7]
    assert out[1].accept_tier == "s3k1d4"
    assert out[1].accept_requests == 0  # how many requests it rests on is not told


def test_idle_shows_no_accept_length_and_no_concurrency() -> None:
    scrape, load = cpu("spec-load")
    out = run((scrape, load), (moved(scrape), load), cpu("spec-just-idle"), cpu("spec-idle"))
    assert out[1].accept_length is not None
    assert out[3].accept_length is None
    assert out[3].concurrency == 0


def test_a_repeated_value_with_an_unmoved_counter_is_not_a_new_sample() -> None:
    scrape, load = cpu("spec-load")
    out = run((scrape, load), (scrape, load), (moved(scrape), load))
    assert [one.fresh for one in out] == [True, False, True]


def test_an_idle_engine_stays_fresh_by_the_time_of_its_load_snapshots() -> None:
    assert [one.fresh for one in run(cpu("spec-just-idle"), cpu("spec-idle"))] == [True, True]


def test_another_start_is_told_by_the_start_up_times() -> None:
    first, second = run(cpu("spec-idle"), cpu("plain-load"))
    assert first.boot_id != second.boot_id
    assert second.fresh
    same = run(cpu("spec-fresh"), cpu("spec-load"), cpu("spec-idle"))
    assert len({one.boot_id for one in same}) == 1


def test_without_start_up_times_a_counter_that_went_back_tells_a_new_start() -> None:
    unmarked = [
        (replace(scrape, start_marker=None), load)
        for scrape, load in (cpu("spec-load"), cpu("spec-idle"), cpu("spec-load"))
    ]
    out = run(*unmarked)
    assert out[0].boot_id == out[1].boot_id
    assert out[2].boot_id != out[1].boot_id


def test_a_load_counter_that_went_back_tells_a_new_start_too() -> None:
    out = run((None, cpu("spec-idle")[1]), (None, cpu("spec-load")[1]))
    assert out[0].boot_id != out[1].boot_id


def test_a_scrape_that_fails_to_name_the_start_keeps_the_known_one() -> None:
    scrape, load = cpu("spec-load")
    out = run((scrape, load), (None, load), (scrape, load))
    assert len({one.boot_id for one in out}) == 1


def test_a_new_start_forgets_the_old_windows() -> None:
    scrape, load = cpu("spec-load")
    again = replace(moved(scrape), start_marker="another")
    out = run((scrape, load), (moved(scrape), load), (again, load))
    assert out[1].accept_length is not None
    assert out[2].accept_length is None


def test_a_plain_server_and_one_before_its_first_step_run_no_tier() -> None:
    for name in ("plain-load", "spec-fresh"):
        (sample,) = run(cpu(name), launch=None)
        assert sample.engine_tier is None
        assert sample.applied == ()


def test_steps_zero_is_tier_off() -> None:
    scrape, load = cpu("spec-load")
    off = moved(scrape, num_steps=0, num_draft_tokens=1, accept_length=1.0)
    (sample,) = run((off, load))
    assert sample.engine_tier == "off"


def test_the_tier_waits_for_the_topk_that_no_metric_tells() -> None:
    (unknown,) = run(cpu("spec-load"), launch=None)
    assert unknown.engine_tier is None
    assert [rank.tier for rank in unknown.applied] == [None]
    tree = TierShape.parse("s2k4d16")
    scrape, load = cpu("spec-load")
    (known,) = run((moved(scrape, num_steps=2, num_draft_tokens=16), load), launch=tree)
    assert known.engine_tier == "s2k4d16"


@pytest.mark.constructed
def test_dp_replicas_add_and_the_busiest_one_is_told_apart() -> None:
    scrape = metrics("constructed-0.5.23/dp2.metrics.txt")
    (sample,) = run((scrape, None))
    assert (sample.concurrency, sample.replica_concurrency) == (17, 12)
    assert sample.decode_tokens == 5700
    assert sample.kv.capacity == 2 * 16384
    assert [(rank.dp_rank, rank.tier) for rank in sample.applied] == [(0, "s3k1d4"), (1, "s3k1d4")]


@pytest.mark.constructed
def test_a_replica_that_tells_nothing_makes_the_sum_unknown_not_smaller() -> None:
    scrape = metrics("constructed-0.5.23/dp2.metrics.txt")
    silent = replace(scrape.replicas[1], running=None)
    (sample,) = run((replace(scrape, replicas=(scrape.replicas[0], silent)), None))
    assert sample.concurrency is None


@pytest.mark.constructed
def test_a_busy_replica_that_stands_still_makes_the_poll_a_repetition() -> None:
    scrape = metrics("constructed-0.5.23/dp2.metrics.txt")
    one, two = scrape.replicas
    stands = replace(scrape, replicas=(replace(one, decode_tokens=4100), two))
    idles = replace(
        scrape, replicas=(replace(one, decode_tokens=4200), replace(two, running=0, queued=0))
    )
    out = run((scrape, None), (stands, None), (idles, None), (idles, None))
    assert [one.fresh for one in out] == [True, False, True, False]


def test_facts_wait_for_server_info_and_then_name_the_server() -> None:
    _, load = cpu("spec-load")
    before = unpatched.facts_of(PluginStatus.ABSENT, "why", "b", None, load)
    assert before.versions is not None
    assert before.versions.engine_version == "0.5.23"
    assert before.identity is None
    assert not before.writable
    info = read_server_info((SAMPLES / "h200-0.5.17/chain-acc2.0_server_info.json").read_text())
    h200 = loads("h200-0.5.17/chain-acc2.0_v1_loads.json")
    after = unpatched.facts_of(PluginStatus.ABSENT, "why", "b", info, h200)
    assert after.identity is not None
    assert (after.identity.gpu, after.identity.gpu_count) == ("NVIDIA H200", 1)
    assert after.launch_tier == "s3k1d4"
    assert not after.simulated
