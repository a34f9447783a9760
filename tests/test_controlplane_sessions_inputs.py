"""What the controller takes in beside observations: noted in order, state and all."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.sessions_inputs import (
    CHECKPOINT_STEPS,
    Intake,
    dump_state,
    load_state,
    read_config,
    read_outcome,
    read_override,
)
from engine_patch.contract_words import Mode
from store.records import CommandOutcome, InputKind, OutcomeKind
from tests.controlplane_script import ENGINE, Script, config, override

LOADS = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@settings(max_examples=30, deadline=None)
@given(LOADS, st.integers(0, 30), st.sampled_from(["restart", "gap", "override", "refusal", ""]))
def test_a_state_comes_back_equal_from_its_checkpoint(
    loads: list[int], at: int, event: str
) -> None:
    script = Script(config=config(), obeys=event != "refusal")
    for number, load in enumerate(loads):
        if number == at and event == "restart":
            script.restart()
        if number == at and event == "gap":
            script.gap()
        if number == at and event == "override":
            script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
        script.see(load)
        if event == "refusal" and script.commands:
            script.answer("invalid")
    assert load_state(dump_state(script.state), script.config) == script.state


def test_everything_is_noted_in_its_order_with_the_observation_before_it() -> None:
    script, intake = Script(), Intake(ENGINE)
    intake.resume(7, 1)
    intake.started()
    intake.configured(script.config)
    intake.configured(config())  # an equal one is no news
    script.see(1)
    intake.stepped(8, 2, script.state)
    one = override()
    intake.overridden(one, 3, 4, "clock-1")
    noted = intake.take()
    assert [(given.kind, given.after_seq) for given in noted] == [
        (InputKind.START, 7),
        (InputKind.CONFIG, 7),
        (InputKind.CHECKPOINT, 8),
        (InputKind.OVERRIDE, 8),
    ]
    assert read_config(noted[1]) == script.config
    assert read_override(noted[3]).override == one
    assert intake.take() == []


def test_after_a_loss_configuration_and_state_are_noted_at_once() -> None:
    script, intake = Script(), Intake(ENGINE)
    intake.configured(script.config)
    script.see(1)
    intake.stepped(1, 1, script.state)
    intake.take()
    intake.stepped(2, 2, script.state)
    assert intake.take() == []
    intake.lost()
    intake.stepped(3, 3, script.state)
    assert [given.kind for given in intake.take()] == [InputKind.CONFIG, InputKind.CHECKPOINT]


def test_a_checkpoint_is_made_every_so_many_steps() -> None:
    script, intake = Script(), Intake(ENGINE)
    script.see(1)
    for seq in range(1, 2 * CHECKPOINT_STEPS + 1):
        intake.stepped(seq, seq, script.state)
    kinds = [given.kind for given in intake.take()]
    assert kinds == [InputKind.CONFIG, InputKind.CHECKPOINT, InputKind.CHECKPOINT]


def test_an_answer_is_noted_whole() -> None:
    script, intake = Script(obeys=False), Intake(ENGINE)
    script.see(60)
    for _ in range(10):
        script.see(60)
    assert script.commands

    outcome = CommandOutcome(
        kind=OutcomeKind.REFUSED,
        epoch=0,
        generation=1,
        at_utc_ms=5,
        at_mono_ms=6,
        latency_ms=1.5,
        code="invalid",
        message="no",
    )
    intake.answered(outcome)
    assert read_outcome(intake.take()[0]) == outcome
