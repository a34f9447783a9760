"""The wire contract: what a command may say, and that newer peers do not break older ones."""

import pytest
from pydantic import ValidationError

from engine_patch.contract import SpeculationState, Versions
from engine_patch.contract_commands import SpeculationCommand
from engine_patch.contract_words import Mode

ORDER = {"holder": "op", "epoch": 0, "generation": 1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"mode": "on", "tier": "off"}, "contradicts itself"),
        ({"mode": "off", "tier": "s3k1d4"}, "contradicts itself"),
        ({"mode": "auto", "tier": "s3k1d4"}, "takes thresholds"),
        ({"mode": "on", "topk": 1}, "together"),
        (
            {"mode": "on", "tier": "s1k1d2", "num_steps": 3, "topk": 1, "num_draft_tokens": 4},
            "differ",
        ),
        ({"mode": "on", "lease_s": 0}, "greater than 0"),
        ({"mode": "on", "lease_s": "inf"}, "finite|less than"),
        ({"mode": "maybe"}, "auto"),
        ({"mode": "on", "tires": "s3k1d4"}, "not permitted"),
    ],
)
def test_a_contradicting_command_is_refused(body: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SpeculationCommand.model_validate(ORDER | body)


def test_a_tier_may_be_named_by_its_three_numbers() -> None:
    command = SpeculationCommand.model_validate(
        ORDER | {"mode": "on", "num_steps": 2, "topk": 4, "num_draft_tokens": 16}
    )
    assert command.shape_name() == "s2k4d16"


def test_a_newer_engines_extra_fields_are_ignored() -> None:
    versions = Versions.model_validate(
        {"engine": "sglang", "engine_version": "9", "plugin_version": "9", "moon_phase": "full"}
    )
    assert versions.engine == "sglang"


def test_the_contract_is_frozen() -> None:
    command = SpeculationCommand(mode=Mode.OFF, **ORDER)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="frozen"):
        command.generation = 2  # type: ignore[misc]


def test_the_state_schema_names_every_part_of_the_contract() -> None:
    fields = set(SpeculationState.model_fields)
    assert fields >= {
        "protocol", "boot_id", "capabilities", "tiers", "mode", "thresholds", "epoch",
        "generation", "claim", "lease", "replicas", "journal", "costs",
    }  # fmt: skip
