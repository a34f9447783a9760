"""Packed ticks: small, exact, checked, and readable by later releases."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

import pytest

from store.db import Store
from store.errors import StoreRefused
from store.records import Tick
from store.tick_codec import pack, text_of, unpack
from tests.store_records import a_tick, busy_day

BYTES_PER_TICK = 60_000_000 / 172_800
"""A day at 2 Hz has to fit into 60 MB."""


def _again(tick: Tick, template: bytes = b"") -> Tick:
    observation = tick.observation
    return unpack(
        pack(text_of(tick), template),
        template,
        row_id=tick.id,
        seq=observation.seq,
        at_utc_ms=observation.at_utc_ms,
        is_gap=observation.kind == "gap",
    )


def test_a_tick_is_the_same_after_packing_with_and_without_a_template() -> None:
    first, *others = busy_day(40)
    template = text_of(first)
    assert _again(first) == first
    assert [_again(tick, template) for tick in others] == others


def test_a_template_saves_most_of_a_tick() -> None:
    first, second = busy_day(2)
    assert len(pack(text_of(second), text_of(first))) < len(pack(text_of(second), b"")) / 3


def test_a_wrong_template_or_a_flipped_bit_is_noticed() -> None:
    first, second = busy_day(2)
    template = text_of(first)
    body = pack(text_of(second), template)
    where = {"row_id": 1, "seq": 2, "at_utc_ms": 3, "is_gap": False}
    with pytest.raises(zlib.error):
        unpack(body, template.replace(b"steady", b"gone"), **where)
    for position in range(len(body)):
        flipped = bytes([*body[:position], body[position] ^ 0x10, *body[position + 1 :]])
        with pytest.raises((ValueError, zlib.error)):
            unpack(flipped, template, **where)
    with pytest.raises((ValueError, zlib.error)):
        unpack(body[:-3], template, **where)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_cannot_say_is_refused_and_not_turned_into_null(
    number: float, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "s.db") as store:
        bad = a_tick().model_copy(update={"decode_tok_s": number})
        with pytest.raises(StoreRefused, match="not stored"):
            store.write([bad]).result(timeout=10)
        assert store.ticks("e1") == []


def test_defaults_left_out_of_an_old_row_still_mean_what_they_meant() -> None:
    """Rows leave defaults out, so a default that ever was in a release must stay as it is here."""
    old = {
        "observation": {
            "engine_id": "e",
            "at_mono_ms": 5,
            "clock_id": "c",
            "latency_ms": 1.0,
            "source": "speculation",
            "boot_id": None,
            "thresholds": {"tiers": ["off"]},
            "applied": [{"dp_rank": 0, "tp_rank": 0, "tier": None}],
            "switches": [
                {
                    "seq": 1,
                    "from_tier": "off",
                    "to_tier": "s3k1d4",
                    "reason": "batch_down",
                    "step": 9,
                    "batch": 3,
                }
            ],
        },
        "engine_id": "e",
        "verdict": {
            "tier": None,
            "reason": "steady",
            "text": "",
            "clauses": [
                {
                    "metric": "concurrency",
                    "value": 1.0,
                    "unit": "req",
                    "op": "<",
                    "threshold": 2.0,
                    "met": True,
                }
            ],
            "outlook": [{"tier": "off", "reason": "load_up", "clauses": []}],
        },
        "stance": "active",
        "policy_version": 1,
        "desired": None,
        "desired_mode": None,
        "confirmed": None,
        "override": {
            "engine_id": "e",
            "mode": "off",
            "author": "a",
            "reason": "r",
            "created_utc_ms": 1,
            "expires_utc_ms": 2,
            "granted_s": 1.0,
        },
        "pending": {
            "engine_id": "e",
            "seq": 1,
            "at_utc_ms": 2,
            "from_tier": None,
            "to_tier": "off",
            "reason": "fixed",
            "text": "",
        },
    }
    tick = unpack(
        pack(json.dumps(old, separators=(",", ":")).encode(), b""),
        b"",
        row_id=7,
        seq=8,
        at_utc_ms=9,
        is_gap=False,
    ).model_dump(mode="json")

    def has(whole: dict[str, object], **expected: object) -> None:
        assert {name: whole[name] for name in expected} == expected

    nothing = [
        "concurrency",
        "replica_concurrency",
        "queued",
        "prefilling",
        "decode_tokens",
        "decode_steps",
        "verify_steps",
        "prefill_tokens",
        "retractions",
        "graph_misses",
        "accept_length",
        "accept_tier",
        "mode",
        "desired_tier",
        "off_flavour",
        "engine_tier",
        "claim_holder",
        "claim_remaining_s",
        "lease_remaining_s",
        "simulation_valid",
        "simulation_lag",
    ]
    sample = tick["observation"]
    has(sample, **dict.fromkeys(nothing))
    has(sample, fresh=True, accept_requests=0, epoch=0, generation=0, journal_hole=False)
    has(sample["kv"], capacity=None, committed=None, evictable=None, reserve=None)
    has(sample["thresholds"], boundaries=[], min_dwell_steps=64, min_accept_length={})
    has(sample["applied"][0], epoch=0, generation=0)
    has(sample["switches"][0], dp_rank=0, accept_length=None, epoch=0, generation=0)
    has(sample["switches"][0], reserve_returned=0, at_utc_ms=None)
    has(tick["verdict"]["clauses"][0], held_s=0.0, needed_s=0.0)
    has(tick["verdict"]["outlook"][0], blocked="")
    has(tick["override"], id=0, tier=None, guards="keep", ended_utc_ms=None, ended_by="")
    has(tick["pending"], id=0, clauses=[], author="auto", outcome="requested", latency_ms=None)
    has(tick["pending"], attempts=0, epoch=0, generation=0, message="", settled_utc_ms=None)
    has(tick, tier_age_s=None, decode_tok_s=None, stale_s=0.0, override_left_s=None)
    has(tick, decisions=[], alarms=[], warnings=[])


@pytest.mark.parametrize("ranks", [1, 8])
def test_a_day_of_ticks_at_two_hertz_fits_into_sixty_megabytes(ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    ticks = busy_day(4000, ranks)
    with Store.open(path) as store:
        for start in range(0, len(ticks), 500):
            store.write(ticks[start : start + 500]).result(timeout=20)
    per_tick = path.stat().st_size / len(ticks)
    print(f"{ranks} ranks: {per_tick:.0f} bytes per tick, indexes included")
    assert per_tick < BYTES_PER_TICK
