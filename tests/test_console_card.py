"""The mode card: what runs, whether it is confirmed, why, and what comes next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.board import Board, apply, seeded, with_status
from console.card import card, confirmation, mode_words, simulated
from console.clauses import building, reason_clause, wanted
from console.formatting import ASCII, UNICODE
from console.scene import Link, LinkState, Scene
from console.spans import plain
from engine_patch.contract_words import OffKind
from store.observations import PluginStatus, RankTier
from store.policies import FixedPolicy, Stance
from store.records import Op, Outcome, Outlook, Reason, Tick, Verdict
from tests.console_pictures import NOW_MS
from tests.console_story import (
    DEEP,
    ENGINE,
    NARROW,
    OFF,
    clause,
    decision,
    facts,
    gap,
    override,
    sample,
    status,
    tick,
    tier_info,
)


def shown(last: Tick, **changes: Any) -> Scene:
    """A scene 0.3 s after ``last``."""
    known = changes.pop("known", None)
    board = apply(with_status(Board(ENGINE), status(known=known)), last)
    return Scene(board, now_ms=NOW_MS, **changes)


def rows(scene: Scene, size: int = 120) -> list[str]:
    return [plain(row) for row in card(scene, size)]


def test_a_confirmed_tier_says_where_and_since_when() -> None:
    scene = shown(tick(sample(120)))
    assert "▲ ON s3k1d4  for 4m12s" in rows(scene)[1]
    assert "engine confirms s3k1d4 on 2/2 ranks, generation 37" in rows(scene)[1]


def test_each_kind_of_tier_has_its_own_shape_and_word() -> None:
    words = [
        plain(mode_words(shown(tick(sample(120, tier), tier)))) for tier in (DEEP, NARROW, OFF)
    ]
    assert [text.split("  ")[0] for text in words] == ["▲ ON s3k1d4", "■ ON s1k1d2", "○ OFF"]


def test_an_off_that_verifies_one_token_is_called_so() -> None:
    kind = OffKind.ONE_TOKEN_VERIFY
    known = facts(tiers=tuple(tier_info(t, kind) for t in (DEEP, OFF)), off_kind=kind)
    assert "○ OFF (one-token verify)" in rows(shown(tick(sample(120, OFF), OFF), known=known))[1]


def test_a_request_that_is_not_settled_says_what_still_runs_and_how_long() -> None:
    asked = decision(119.9, DEEP, OFF, outcome=Outcome.REQUESTED, settled_utc_ms=None)
    scene = shown(tick(sample(120), desired=OFF, pending=asked))
    assert "asked off, engine still s3k1d4, 0.4s" in rows(scene)[1]


def test_a_wish_that_was_never_obeyed_stays_visible() -> None:
    scene = shown(tick(sample(120), desired=OFF))
    assert "asked off, engine still s3k1d4" in rows(scene)[1]


def test_ranks_that_differ_are_counted_per_tier() -> None:
    ranks = tuple(
        RankTier(dp_rank=0, tp_rank=rank, tier=tier) for rank, tier in enumerate((OFF, DEEP, DEEP))
    )
    scene = shown(tick(sample(120, applied=ranks), None, desired=None))
    assert "? UNKNOWN" in rows(scene)[1]
    assert "ranks differ: off on 1, s3k1d4 on 2" in rows(scene)[1]


def test_replicas_that_differ_are_no_torn_ranks() -> None:
    ranks = tuple(
        RankTier(dp_rank=dp, tp_rank=tp, tier=tier)
        for dp, tier in enumerate((OFF, DEEP))
        for tp in range(2)
    )
    scene = shown(tick(sample(120, applied=ranks), None, desired=None))
    assert "replicas differ: off on 2, s3k1d4 on 2" in rows(scene)[1]


def test_an_engine_that_never_answered_has_no_last_known_mode() -> None:
    text = rows(shown(tick(gap(120), None, desired=None)))[1]
    assert "? UNKNOWN   nothing was read from the engine yet" in text


def test_a_tier_that_no_rank_reports_is_not_confirmed() -> None:
    unseen = (RankTier(dp_rank=0, tp_rank=0, tier=None),)
    assert (
        "no rank observed" in rows(shown(tick(sample(120, applied=unseen), None, desired=None)))[1]
    )


@pytest.mark.parametrize(
    ("plugin", "message", "words"),
    [
        (PluginStatus.ABSENT, "", "plugin absent: observed only"),
        (PluginStatus.REFUSED, "SGLang 0.5.24 is not known", "plugin refused: SGLang 0.5.24"),
        (PluginStatus.PROTOCOL, "speaks 3", "plugin protocol: speaks 3"),
    ],
)
def test_an_engine_that_cannot_be_commanded_says_why(
    plugin: PluginStatus, message: str, words: str
) -> None:
    known = facts(plugin=plugin, plugin_message=message)
    scene = shown(tick(sample(120), None), known=known)
    assert words in rows(scene)[1]
    assert "OBSERVING" in rows(scene)[0]


def test_the_last_mode_is_called_last_known_when_it_is_old() -> None:
    board = apply(with_status(Board(ENGINE), status()), tick(sample(100)))
    board = apply(board, tick(gap(120), None, stale_s=20.0, desired=DEEP))
    text = rows(Scene(board, now_ms=NOW_MS))[1]
    assert "last known ▲ ON s3k1d4" in text
    assert "not confirmed since" in text
    assert " for " not in text


def test_an_engine_never_seen_is_waited_for() -> None:
    board = with_status(Board(ENGINE), status())
    assert "? WAITING   no poll of this engine has ended yet" in rows(Scene(board, NOW_MS))[1]
    connecting = Scene(board, NOW_MS, link=Link(LinkState.CONNECTING))
    assert "no data from the control plane yet" in rows(connecting)[1]


def test_why_prints_the_clauses_and_falls_back_to_the_policys_sentence() -> None:
    scene = shown(tick(sample(120)))
    assert "concurrency 25 ≥ 24 req held 1.9/5.0s · accept length" in rows(scene)[2]
    assert "concurrency 25 >= 24 held 1.9 s of 5.0 s" in rows(scene, 62)[2]
    bare = Verdict(tier=None, reason=Reason.PAUSED, text="")
    assert "why   paused" in rows(shown(tick(sample(120), verdict=bare)))[2]


def test_next_shows_the_nearest_candidates_with_their_progress() -> None:
    text = rows(shown(tick(sample(120))), 80)
    assert "next  ■ s1k1d2  when concurrency ≥ 24 req for 5.0s     [###-------] 1.9/5.0s" in text[3]
    assert "○ off     when concurrency ≥ 40" in text[4]
    assert "[----------] not building" in text[4]


def test_what_blocks_a_candidate_stands_in_place_of_its_progress() -> None:
    held = Outlook(
        tier=OFF,
        reason=Reason.LOAD_UP,
        clauses=(clause("concurrency", 30, Op.GE, 24, met=False, held_s=2.0, needed_s=5.0),),
        blocked="dwell 3.1 s left",
    )
    said = Verdict(tier=None, reason=Reason.DWELL, text="dwell", outlook=(held,))
    text = rows(shown(tick(sample(120), verdict=said)))[3]
    assert text.rstrip(" │").endswith("dwell 3.1 s left")


def test_under_an_override_next_says_what_automation_would_do() -> None:
    held = Outlook(
        tier=OFF,
        reason=Reason.LOAD_UP,
        clauses=(clause("concurrency", 30, Op.GE, 24, met=False, held_s=2.5, needed_s=5.0),),
        blocked="override 221.0 s left",
    )
    said = Verdict(tier=None, reason=Reason.OVERRIDE, text="override", outlook=(held,))
    last = tick(sample(120), verdict=said, override=override(), override_left_s=221.3)
    text = rows(shown(last), 80)
    assert "OVERRIDE · op1 · 03:41 left [###-----]" in text[0]
    assert text[3].startswith("│ auto  ○ off")
    assert "[#####-----] 2.5/5.0s" in text[3]


def test_a_simulated_engine_is_marked_for_good_and_the_mark_is_never_cut() -> None:
    known = facts(simulated=True, simulation_table="h200-8b-triton")
    last = tick(sample(120), override=override(), override_left_s=221.3)
    scene = shown(last, known=known)
    assert simulated(scene) == "SIMULATED h200-8b-triton"
    for size in (60, 80, 120):
        assert "SIMULATED h200-8b-triton" in rows(scene, size)[0]
    assert simulated(shown(last)) == ""


def test_a_sample_alone_can_tell_that_times_are_simulated() -> None:
    assert simulated(shown(tick(sample(120, simulation_valid=True)))) == "SIMULATED"


@pytest.mark.parametrize(
    ("stance", "words"),
    [
        (Stance.ACTIVE, "AUTO · hysteresis v3"),
        (Stance.SHADOW, "SHADOW · hysteresis v3"),
        (Stance.PAUSED, "PAUSED · hysteresis v3"),
    ],
)
def test_the_corner_names_stance_and_policy(stance: Stance, words: str) -> None:
    assert words in rows(shown(tick(sample(120), stance=stance)))[0]


def test_shadow_says_what_automation_would_run() -> None:
    wish = decision(110, DEEP, NARROW, outcome=Outcome.SHADOW, settled_utc_ms=None)
    scene = shown(tick(sample(120), stance=Stance.SHADOW, desired=None, decisions=(wish,)))
    assert "automation would run s1k1d2" in rows(scene)[1]
    active = shown(tick(sample(120), decisions=(wish,)))
    assert "would run" not in rows(active)[1]


def test_without_candidates_it_says_why_there_is_nothing_to_wait_for() -> None:
    quiet = Verdict(tier=None, reason=Reason.STEADY, text="steady")
    scene = shown(tick(sample(120), verdict=quiet))
    assert scene.board.policy is not None
    fixed = scene.board.policy.model_copy(update={"policy": FixedPolicy(tier=DEEP)})
    fixed_scene = replace(scene, board=replace(scene.board, policy=fixed))
    assert "nothing: the policy is fixed on s3k1d4" in rows(fixed_scene)[3]
    paused = shown(tick(sample(120), verdict=quiet, stance=Stance.PAUSED))
    assert "nothing: automation is paused" in rows(paused)[3]


def test_the_confirmation_never_claims_what_is_not_fresh() -> None:
    scene = shown(tick(sample(120)))
    old = replace(scene, now_ms=NOW_MS + 60_000)
    assert not any("confirms" in text for text in confirmation(old)[0])


def test_a_clause_without_a_value_shows_a_dash() -> None:
    missing = clause("accept length", None, Op.LT, 1.8, unit="tok", met=False)
    assert reason_clause(missing, UNICODE) == "accept length - < 1.80 tok (not met)"


def test_operators_and_shares_are_readable_in_both_alphabets() -> None:
    share = clause("KV used", 0.913, Op.LE, 0.92, unit="share")
    assert reason_clause(share, UNICODE) == "KV used 91.3 ≤ 92 %"
    assert reason_clause(share, ASCII) == "KV used 91.3 <= 92 %"


def test_many_clauses_shorten_to_the_one_furthest_from_being_met() -> None:
    near = clause("concurrency", 30, Op.GE, 24, met=False, held_s=4.0, needed_s=5.0)
    far = clause("KV used", 0.9, Op.LT, 0.8, unit="share", met=False)
    outlook = Outlook(tier=OFF, reason=Reason.LOAD_UP, clauses=(near, far))
    texts = wanted(outlook, UNICODE)
    assert texts[0] == "concurrency ≥ 24 req for 5.0s and KV used < 80 %"
    assert texts[1] == "KV used < 80 % (+1)"
    assert building(outlook) == "[----------] not building"


def test_all_clauses_met_is_ready() -> None:
    done = Outlook(tier=OFF, reason=Reason.LOAD_UP, clauses=(clause("concurrency", 30, Op.GE, 24),))
    assert building(done) == "[##########] ready"


def test_an_unsettled_request_with_differing_ranks_names_them() -> None:
    ranks = (
        RankTier(dp_rank=0, tp_rank=0, tier=OFF),
        RankTier(dp_rank=0, tp_rank=1, tier=DEEP),
    )
    asked = decision(119.9, DEEP, OFF, outcome=Outcome.REQUESTED, settled_utc_ms=None)
    scene = shown(tick(sample(120, applied=ranks), None, desired=OFF, pending=asked))
    assert "asked off, ranks differ: off on 1, s3k1d4 on 1, 0.4s" in rows(scene)[1]


def test_a_seeded_board_keeps_an_outcome_it_was_told() -> None:
    board = seeded(with_status(Board(ENGINE), status()), (), (decision(1, DEEP, OFF),))
    assert len(board.log) == 1


def test_one_tier_on_all_ranks_that_is_not_confirmed_yet_is_no_difference() -> None:
    seen = (RankTier(dp_rank=0, tp_rank=0, tier=DEEP), RankTier(dp_rank=0, tp_rank=1, tier=DEEP))
    last = tick(sample(120, applied=seen), None, desired=None)
    assert confirmation(shown(last))[0][0] == f"2/2 ranks run {DEEP}, not confirmed yet"
