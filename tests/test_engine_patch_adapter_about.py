"""What the control plane is told about an engine: each missing ability comes with its remedy."""

from __future__ import annotations

import pytest

from engine_patch import adapter_about
from engine_patch.adapter_launch import Asked
from engine_patch.contract import Identity, TierInfo, Versions
from engine_patch.contract_words import Mode, OffFlavour, OffKind
from engine_patch.published import RankFacts
from engine_patch.tier import OFF

VERSIONS = Versions(engine="sglang", engine_version="0.5.23", plugin_version="0.1.0")
TIERS = (
    TierInfo(name=OFF, num_steps=0, topk=1, num_draft_tokens=1, alloc_len=1,
             off_kind=OffKind.ONE_TOKEN_VERIFY),
    TierInfo(name="s3k1d4", num_steps=3, topk=1, num_draft_tokens=4, alloc_len=4),
)  # fmt: skip


def _facts(**changes: object) -> RankFacts:
    known = {"model": "m", "algorithm": "EAGLE3", "max_running_requests": 48}
    fields: dict[str, object] = {
        "pid": 1,
        "identity": Identity.model_validate(known | changes.pop("identity", {})),  # type: ignore[operator]
        "tiers": TIERS,
        "launch_tier": "s3k1d4",
        "off_flavour": OffFlavour.WARM,
        "flavours": (OffFlavour.WARM, OffFlavour.COLD),
        "off_reason": "not tried with attention backend trtllm_mha",
    }
    return RankFacts.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("asked", "cap", "dp_size", "origin"),
    [
        (Asked(algorithm="EAGLE3", max_running_requests=64), 64, 1, "flag"),
        (Asked(algorithm="EAGLE3", max_running_requests=64), 32, 2, "flag"),
        (
            Asked(algorithm="EAGLE3", max_running_requests=64), 40, 1,
            "flag, lowered to fit the KV pool",
        ),
        (Asked(algorithm="EAGLE3"), 48, 1, "speculative default 48"),
        (Asked(algorithm=None), 2048, 1, "derived by SGLang"),
        (None, 48, 1, None),
    ],
)  # fmt: skip
def test_the_origin_of_the_cap_is_told(
    asked: Asked | None, cap: int, dp_size: int, origin: str | None
) -> None:
    known = Identity(model="m", max_running_requests=cap, dp_size=dp_size)
    assert adapter_about.cap_origin(asked, known) == origin


def test_an_unset_cap_is_told_apart_from_the_one_in_force() -> None:
    told = adapter_about.identity(_facts(), Asked(algorithm="EAGLE3"))
    assert told.requested_max_running_requests is None
    assert told.max_running_requests == 48


@pytest.mark.parametrize(
    ("facts", "asked", "words"),
    [
        (None, None, "no rank of this host publishes"),
        (_facts(), Asked(adaptive=True), ""),
        (
            _facts(unsupported="fixed", identity={"algorithm": None}),
            Asked(),
            "--speculative-algorithm",
        ),
        (_facts(unsupported="fixed"), Asked(algorithm="EAGLE3"), "--speculative-adaptive"),
        (
            _facts(unsupported="fixed"),
            Asked(algorithm="EAGLE3", adaptive=True, turned_off="attention DP is not supported"),
            "SGLang turned --speculative-adaptive off: attention DP is not supported",
        ),
        (
            _facts(unsupported="fixed", identity={"algorithm": "NGRAM"}),
            Asked(algorithm="NGRAM", adaptive=True, turned_off="only EAGLE"),
            "n-gram worker has one width built in",
        ),
        (_facts(unsupported="pipeline"), Asked(algorithm="EAGLE3", adaptive=True), "pipeline"),
    ],
)
def test_why_nothing_can_be_switched_and_which_flag_to_set(
    facts: RankFacts | None, asked: Asked | None, words: str
) -> None:
    reason = adapter_about.unsupported(facts, asked)
    assert words in reason
    assert bool(reason) == bool(words)


def _capabilities(reason: str = "", **more: object) -> dict[str, tuple[bool, str]]:
    told = adapter_about.capabilities(
        more.get("facts", _facts()),  # type: ignore[arg-type]
        reason,
        more.get("faults", {}),  # type: ignore[arg-type]
        bool(more.get("tested", True)),
        VERSIONS,
    )
    return {c.name: (c.available, c.reason) for c in told}


def test_what_is_not_available_always_has_a_reason() -> None:
    for told in (_capabilities(), _capabilities("no"), _capabilities(facts=None, tested=False)):
        assert all(available == (reason == "") for available, reason in told.values())


def test_a_rank_that_stopped_deciding_takes_switching_away() -> None:
    told = _capabilities(faults={"DP 0 TP 1": "the policy failed"})
    assert told["switching"] == (False, "DP 0 TP 1: the policy failed")


def test_an_untested_version_works_and_is_named() -> None:
    told = _capabilities(tested=False)
    assert told["switching"][0]
    assert "untested version: SGLang 0.5.23" in told["tested_version"][1]


def test_an_engine_without_off_says_how_to_build_it() -> None:
    told = _capabilities(facts=_facts(tiers=TIERS[1:], off_flavour=None))
    assert "SPECDECK_TIERS" in told["off"][1]


def test_the_front_starts_in_the_launch_tier() -> None:
    front = adapter_about.at_launch("b" * 32, _facts(), "")
    assert (front.mode, front.tier, front.tiers) == (Mode.ON, "s3k1d4", (OFF, "s3k1d4"))
    assert front.flavours == (OffFlavour.WARM, OffFlavour.COLD)
    assert front.largest_batch == {}


def test_a_tiers_largest_batch_reaches_the_front() -> None:
    tree = TIERS[1].model_copy(update={"max_batch": 16})
    assert adapter_about.at_launch("b" * 32, _facts(tiers=(tree,)), "").largest_batch == {
        "s3k1d4": 16
    }


def test_tiers_that_were_left_out_are_told_with_their_reason() -> None:
    left_out = (("s2k4d8", "tier s2k4d8 needs about 9,000 MiB"),)
    told = _capabilities(facts=_facts(left_out=left_out))
    assert told["all_tiers"] == (False, "tier s2k4d8 needs about 9,000 MiB")
    assert told["tree_tiers"] == (False, "tier s2k4d8 needs about 9,000 MiB")


def test_how_off_runs_and_what_it_gives_back_is_told() -> None:
    told = _capabilities()
    assert "one-token verify: not tried with" in told["plain_off"][1]
    assert "SPECDECK_RESERVE=all" in told["reserve_follows_tier"][1]
    told = _capabilities(facts=_facts(off_reason="", reserve_follows=True))
    assert told["plain_off"] == told["reserve_follows_tier"] == (True, "")


def test_a_plain_server_starts_off_and_takes_no_command() -> None:
    facts = _facts(tiers=(), launch_tier=None, off_flavour=None, unsupported="x")
    front = adapter_about.at_launch("b" * 32, facts, "no speculation")
    assert (front.mode, front.tiers, front.unsupported) == (Mode.OFF, (OFF,), "no speculation")
