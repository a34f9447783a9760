"""What can be steered and why not, what off is worth, first stance, setup key."""

from __future__ import annotations

import pytest

from controlplane.capabilities import (
    OffWorth,
    abilities,
    cap_note,
    first_stance,
    measured,
    off_kind,
    off_note,
    refusal,
    setup_key,
)
from engine_patch.contract import Capability, Identity
from engine_patch.contract_words import Mode, OffKind
from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Boundary, Thresholds
from store.observations import EngineFacts, PluginStatus
from store.policies import Stance
from tests.controlplane_script import facts

ABSENT = EngineFacts(boot_id=None, plugin=PluginStatus.ABSENT)
THRESHOLDS = Thresholds(tiers=("s3k1d4", OFF), boundaries=(Boundary(up_at=24, down_at=16),))


def identity(engine: EngineFacts, **changes: object) -> EngineFacts:
    assert engine.identity is not None
    return engine.model_copy(update={"identity": engine.identity.model_copy(update=changes)})


# -- off --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "backend", "worth"),
    [
        (OffKind.ONE_TOKEN_VERIFY, "triton", OffWorth.WORSE),
        (OffKind.ONE_TOKEN_VERIFY, "fa3", OffWorth.EQUAL),
        (OffKind.ONE_TOKEN_VERIFY, "flashinfer", OffWorth.UNKNOWN),
        (OffKind.ONE_TOKEN_VERIFY, "intel_amx", OffWorth.UNKNOWN),
        (OffKind.ONE_TOKEN_VERIFY, None, OffWorth.UNKNOWN),
        (OffKind.PLAIN_PATH, "triton", OffWorth.EQUAL),
        (OffKind.PLAIN_PATH, "fa3", OffWorth.EQUAL),
        (OffKind.PLAIN_PATH, "flashinfer", OffWorth.EQUAL),
        (OffKind.PLAIN_PATH, "intel_amx", OffWorth.UNKNOWN),
    ],
)
def test_off_is_worth_what_was_measured_on_its_backend(
    kind: OffKind, backend: str | None, worth: OffWorth
) -> None:
    assert off_note(facts(backend=backend, off=kind)).worth is worth


def test_a_slow_off_is_told_with_ratio_gpu_and_version() -> None:
    note = off_note(facts(backend="triton", off=OffKind.ONE_TOKEN_VERIFY))
    assert note.word == "one-token verify"
    for part in ("0.25 to 0.31", "H200", "0.5.17", "triton", "128 to 256"):
        assert part in note.text


def test_another_gpu_than_the_measured_one_is_named() -> None:
    engine = identity(facts(off=OffKind.ONE_TOKEN_VERIFY), gpu="NVIDIA L40S")
    assert "this engine runs on NVIDIA L40S" in off_note(engine).text


def test_an_off_that_was_not_measured_says_so() -> None:
    note = off_note(facts(backend="flashinfer", off=OffKind.ONE_TOKEN_VERIFY))
    assert "not measured" in note.text
    assert note.word == OFF


def test_a_ratio_is_told_with_its_source() -> None:
    note = off_note(facts(backend="flashinfer", off=OffKind.PLAIN_PATH))
    for part in ("0.98 to 0.99 of a plain server's tokens/s", "H200", "0.5.17", "1 to 128"):
        assert part in note.text


def test_an_engine_without_an_off_tier_has_nothing_to_compare() -> None:
    engine = facts("s3k1d4")
    assert off_kind(engine) is None
    assert off_note(engine).text == "no tier off was built"


def test_the_off_kind_of_the_tier_counts_where_the_facts_have_none() -> None:
    engine = facts(off=OffKind.ONE_TOKEN_VERIFY).model_copy(update={"off_kind": None})
    assert off_kind(engine) is OffKind.ONE_TOKEN_VERIFY


# -- cap --------------------------------------------------------------------------------------


def test_the_cap_that_speculation_sets_by_itself_is_told() -> None:
    engine = identity(facts(), max_running_requests=48, requested_max_running_requests=None)
    note = cap_note(engine)
    assert note is not None
    assert note.startswith("max_running_requests 48 was set by SGLang because speculation is on")


def test_a_cap_that_was_asked_for_needs_no_note() -> None:
    assert cap_note(facts()) is None
    assert cap_note(ABSENT) is None


def test_a_cap_other_than_asked_for_is_told_with_its_origin() -> None:
    engine = identity(
        facts(),
        max_running_requests=64,
        requested_max_running_requests=256,
        cap_origin="KV pool",
    )
    assert cap_note(engine) == (
        "max_running_requests is 64 (KV pool), not the 256 asked for at launch"
    )


# -- steering ---------------------------------------------------------------------------------


def test_an_absent_plugin_can_steer_nothing_and_says_why() -> None:
    (only,) = abilities(ABSENT)
    assert (only.name, only.available) == ("steer", False)
    assert only.text == "plugin absent: observing only"


def test_the_engines_own_capabilities_come_with_their_reasons() -> None:
    engine = facts().model_copy(
        update={
            "capabilities": (
                Capability(name="trees", available=False, reason="page size 64 with flashinfer"),
            )
        }
    )
    found = {ability.name: ability for ability in abilities(engine)}
    assert found["steer"].available is True
    assert found["tiers"].text == "built: s3k1d4"
    assert found["trees"].text == "page size 64 with flashinfer"


@pytest.mark.parametrize(
    ("mode", "tier", "thresholds", "part"),
    [
        (Mode.ON, "s5k1d6", None, "tier s5k1d6 was not built; built are: s3k1d4"),
        (Mode.AUTO, None, None, "no thresholds"),
        (Mode.ON, "s3k1d4", None, None),
        (Mode.ON, None, None, None),
        (Mode.OFF, None, None, None),
        (Mode.AUTO, None, THRESHOLDS, None),
    ],
)
def test_an_impossible_request_is_refused_with_what_is_possible(
    mode: Mode, tier: str | None, thresholds: Thresholds | None, part: str | None
) -> None:
    answer = refusal(facts(), mode, tier, thresholds)
    assert (answer is None) == (part is None)
    assert part is None or (answer is not None and part in answer)


def test_off_cannot_be_asked_of_an_engine_that_has_not_built_it() -> None:
    answer = refusal(facts("s3k1d4", "s1k1d2"), Mode.OFF, None, None)
    assert answer == "tier off was not built; built are: s3k1d4, s1k1d2"


def test_an_engine_without_the_plugin_refuses_every_override() -> None:
    for mode in Mode:
        assert refusal(ABSENT, mode, None, THRESHOLDS) is not None


# -- first stance -----------------------------------------------------------------------------


def cells(
    *tiers: str, buckets: tuple[int, ...] = (1, 16), samples: int = 50
) -> tuple[StepCost, ...]:
    return tuple(
        StepCost(tier=tier, bucket=bucket, samples=samples, mean_ms=5.0)
        for tier in tiers
        for bucket in buckets
    )


def test_an_unmeasured_engine_starts_in_shadow() -> None:
    assert first_stance(facts(), ()) is Stance.SHADOW


def test_an_engine_measured_on_every_tier_starts_active() -> None:
    assert first_stance(facts(), cells("s3k1d4", OFF)) is Stance.ACTIVE


@pytest.mark.parametrize(
    "costs",
    [
        cells("s3k1d4"),
        cells("s3k1d4", OFF, buckets=(16,)),
        cells("s3k1d4", OFF, samples=0),
        cells("s5k1d6", OFF),
    ],
)
def test_a_table_with_holes_is_no_measurement(costs: tuple[StepCost, ...]) -> None:
    assert measured(facts(), costs) is False
    assert first_stance(facts(), costs) is Stance.SHADOW


def test_a_simulated_engine_runs_on_its_table_interpolated_or_not() -> None:
    interpolated = tuple(
        item.model_copy(update={"measured": False, "samples": 0}) for item in cells("s3k1d4", OFF)
    )
    assert measured(facts(), interpolated) is False
    assert measured(facts().model_copy(update={"simulated": True}), interpolated) is True


def test_a_slow_off_need_not_be_measured_since_automation_never_picks_it() -> None:
    engine = facts("s3k1d4", "s1k1d2", OFF, off=OffKind.ONE_TOKEN_VERIFY)
    assert first_stance(engine, cells("s3k1d4", "s1k1d2")) is Stance.ACTIVE


def test_an_engine_that_cannot_be_commanded_is_never_active() -> None:
    engine = facts().model_copy(update={"plugin": PluginStatus.ABSENT})
    assert first_stance(engine, cells("s3k1d4", OFF)) is Stance.SHADOW


# -- setup key --------------------------------------------------------------------------------


def test_the_setup_key_is_readable_and_stable() -> None:
    key = setup_key(facts())
    assert key.startswith("sglang-0.5.23_llama8b_NVIDIA-H200x1_triton_tp1-dp1_")
    assert key == setup_key(facts().model_copy(update={"boot_id": "another"}))
    assert key == setup_key(facts(OFF, "s3k1d4"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "/models/llama70b"),
        ("draft_model", "/models/other"),
        ("dtype", "float16"),
        ("gpu", "NVIDIA B200"),
        ("gpu_count", 8),
        ("tp_size", 4),
        ("dp_size", 2),
        ("attention_backend", "fa3"),
        ("max_running_requests", 48),
        ("kv_capacity", 400_000),
    ],
)
def test_each_part_of_the_identity_makes_another_key(field: str, value: object) -> None:
    assert setup_key(identity(facts(), **{field: value})) != setup_key(facts())


def test_versions_tiers_and_the_kind_of_off_make_another_key() -> None:
    base = facts()
    assert base.versions is not None
    keys = {setup_key(base), setup_key(facts("s3k1d4", "s1k1d2", OFF))}
    keys.add(setup_key(facts(off=OffKind.ONE_TOKEN_VERIFY)))
    for field in ("engine_version", "plugin_version", "flashinfer"):
        versions = base.versions.model_copy(update={field: "9.9"})
        keys.add(setup_key(base.model_copy(update={"versions": versions})))
    keys.add(setup_key(base.model_copy(update={"simulated": True, "simulation_table": "h200"})))
    assert len(keys) == 7


def test_a_pool_that_differs_by_a_few_slots_keeps_its_key() -> None:
    assert setup_key(identity(facts(), kv_capacity=861_012)) == setup_key(facts())


def test_an_engine_that_tells_nothing_still_has_a_key() -> None:
    assert setup_key(ABSENT).startswith("---_-_-x-_-_-_")


def test_the_identity_has_no_part_that_the_key_forgets() -> None:
    known = {
        "model", "draft_model", "dtype", "gpu", "gpu_count", "tp_size", "dp_size",
        "attention_backend", "max_running_requests", "kv_capacity",
    }  # fmt: skip
    # Not part of a step's cost: the drafter's algorithm follows from the tiers and the draft, the
    # page size from the backend, and what was asked for from what is in force.
    left_out = {"algorithm", "page_size", "requested_max_running_requests", "cap_origin"}
    assert set(Identity.model_fields) == known | left_out
