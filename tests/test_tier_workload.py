"""How answers of a switching server are compared with a plain one's."""

from __future__ import annotations

import pytest

from tests.engine.tier_workload import Job, Outcome, differences

JOB = Job(number=1, kind="abort", prompt="the", new_tokens=3)
PLAIN = Outcome(tokens=(5, 6, 7), text="", logprobs=(), aborted=False)


def _wrong(*tokens: int, aborted: bool) -> bool:
    return bool(differences([JOB], [PLAIN], [Outcome(tokens, "", (), aborted)]))


@pytest.mark.parametrize("tokens", [(), (5,), (5, 6, 7), (5, 6, 7, 9)])
def test_an_aborted_answer_is_the_beginning_of_the_plain_one_and_may_pass_its_limit_by_a_step(
    tokens: tuple[int, ...],
) -> None:
    assert not _wrong(*tokens, aborted=True)


@pytest.mark.parametrize("tokens", [(6,), (5, 7), (5, 6, 8, 9), (5, 6, 7, 9, 9, 9, 9)])
def test_an_aborted_answer_with_another_token_or_a_step_too_many_is_wrong(
    tokens: tuple[int, ...],
) -> None:
    assert _wrong(*tokens, aborted=True)


def test_an_answer_that_ended_is_equal_or_wrong() -> None:
    assert not _wrong(5, 6, 7, aborted=False)
    assert _wrong(5, 6, aborted=False)
    assert _wrong(5, 6, 7, 9, aborted=False)
