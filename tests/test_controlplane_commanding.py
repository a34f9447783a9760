"""Commands on the wire and what their answers mean."""

from __future__ import annotations

import json

import pytest

from controlplane.commanding import command_body, invalid, read_outcome, unanswered
from controlplane.polled import EngineError, Stamp
from engine_patch.contract import PROTOCOL, Claim
from engine_patch.contract_commands import CommandAnswer, Refusal, ReplicaAnswer
from engine_patch.contract_words import Mode, RefusalCode
from engine_patch.tier import Boundary, Thresholds
from store.observations import GapReason
from store.records import Command, CommandOutcome, OutcomeKind

STAMP = Stamp("e", 0, 1000, 50, "clock", 2.5)
COMMAND = Command(mode=Mode.ON, tier="s3k1d4", lease_s=30, epoch=2, generation=7)


def outcome(status: int, body: str | bytes) -> CommandOutcome:
    raw = body if isinstance(body, bytes) else body.encode()
    return read_outcome(COMMAND, STAMP, status, raw)


def test_a_command_is_written_with_order_holder_and_lease_and_no_nulls() -> None:
    assert json.loads(command_body(COMMAND, "ops")) == {
        "protocol": PROTOCOL,
        "mode": "on",
        "tier": "s3k1d4",
        "lease_s": 30,
        "on_lease_end": "auto",
        "holder": "ops",
        "epoch": 2,
        "generation": 7,
        "takeover": False,
    }


def test_thresholds_travel_whole() -> None:
    thresholds = Thresholds(
        tiers=("s3k1d4", "off"), boundaries=(Boundary(up_at=32, down_at=24),), min_dwell_steps=8
    )
    auto = COMMAND.model_copy(update={"mode": Mode.AUTO, "tier": None, "thresholds": thresholds})
    told = json.loads(command_body(auto, "ops"))
    assert Thresholds.model_validate(told["thresholds"]) == thresholds
    assert "tier" not in told


def test_a_command_that_contradicts_itself_is_not_written() -> None:
    wrong = COMMAND.model_copy(update={"tier": "off"})
    with pytest.raises(ValueError, match="use mode 'off'") as caught:
        command_body(wrong, "ops")
    told = invalid(wrong, STAMP, caught.value)
    assert (told.kind, told.code) == (OutcomeKind.REFUSED, "invalid")


def test_200_is_accepted_with_the_order_in_force() -> None:
    answer = CommandAnswer(
        protocol=PROTOCOL,
        boot_id="b",
        epoch=3,
        generation=7,
        mode=Mode.ON,
        tier="s3k1d4",
        replicas=(ReplicaAnswer(dp_rank=0, applied=True),),
    )
    told = outcome(200, answer.model_dump_json())
    assert told.kind is OutcomeKind.ACCEPTED
    assert (told.epoch, told.generation) == (2, 7)
    assert (told.engine_epoch, told.engine_generation) == (3, 7)
    assert (told.at_utc_ms, told.at_mono_ms, told.latency_ms) == (1000, 50, 2.5)


def test_a_foreign_claim_is_refused_with_its_holder_and_time_left() -> None:
    refusal = Refusal(
        code=RefusalCode.FOREIGN_CLAIM,
        message="held by other",
        claim=Claim(holder="other", epoch=4, remaining_s=12.5),
        epoch=4,
        generation=1,
    )
    told = outcome(409, refusal.model_dump_json())
    assert (told.kind, told.code) == (OutcomeKind.REFUSED, "foreign_claim")
    assert (told.held_by, told.held_for_s) == ("other", 12.5)
    assert (told.engine_epoch, told.engine_generation) == (4, 1)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, RefusalCode.STALE_ORDER),
        (409, RefusalCode.KV_SHORT),
        (422, RefusalCode.UNKNOWN_TIER),
        (403, RefusalCode.FORBIDDEN),
        (503, RefusalCode.TIMEOUT),
        (503, RefusalCode.DISAGREE),
    ],
)
def test_a_refusal_keeps_its_code_and_sentence(status: int, code: RefusalCode) -> None:
    told = outcome(status, Refusal(code=code, message="why").model_dump_json())
    assert (told.kind, told.code) == (OutcomeKind.REFUSED, code.value)
    assert told.message.startswith("why")


def test_what_is_allowed_is_part_of_the_sentence() -> None:
    refusal = Refusal(code=RefusalCode.UNKNOWN_TIER, message="no s9", allowed=("off", "s3k1d4"))
    assert outcome(422, refusal.model_dump_json()).message == "no s9; allowed: off, s3k1d4"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, '{"error":"Unauthorized"}'),
        (403, '{"error":"Forbidden"}'),
        (403, Refusal(code=RefusalCode.FORBIDDEN, message="wants its key").model_dump_json()),
    ],
)
def test_a_refused_key_names_the_setting(status: int, body: str) -> None:
    told = outcome(status, body)
    assert (told.kind, told.code) == (OutcomeKind.REFUSED, "forbidden")
    assert "admin_key_file or admin_key_env" in told.message


def test_a_server_without_the_plugin_refuses() -> None:
    told = outcome(404, '{"detail":"Not Found"}')
    assert (told.kind, told.code) == (OutcomeKind.REFUSED, "unsupported")
    assert "plugin is not in it" in told.message


def test_a_refused_plugin_is_quoted() -> None:
    told = outcome(503, '{"plugin":"refused","message":"SGLang 0.6 is not known"}')
    assert told.kind is OutcomeKind.REFUSED
    assert "SGLang 0.6 is not known" in told.message


@pytest.mark.parametrize(("status", "body"), [(500, "boom"), (200, "{}"), (302, "")])
def test_nonsense_counts_as_not_answered(status: int, body: str) -> None:
    assert outcome(status, body).kind is OutcomeKind.UNREACHABLE


def test_a_timeout_says_that_the_effect_is_open() -> None:
    told = unanswered(COMMAND, STAMP, EngineError(GapReason.TIMEOUT, "no answer within 2 s"))
    assert told.kind is OutcomeKind.UNREACHABLE
    assert told.message.startswith("no answer within 2 s; whether the engine took the command")
