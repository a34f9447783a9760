"""Commands as numbers: what goes in comes out, and strangers' numbers are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch.contract_words import Mode, OffFlavour, SwitchReason
from engine_patch.tier import Boundary, Thresholds
from engine_patch.wire import RankCommand, WireError, decode, encode, ours

TIERS = ("off", "s1k1d2", "s3k1d4", "s2k4d16")


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    order = draw(st.permutations(TIERS))[: draw(st.integers(1, len(TIERS)))]
    low, boundaries = 0, []
    for _ in range(len(order) - 1):
        down = low + draw(st.integers(1, 50))
        up = down + draw(st.integers(1, 50))
        boundaries.append(Boundary(up_at=up, down_at=down))
        low = up
    floors = {t: draw(st.floats(1, 2)) for t in order if t != "off" and draw(st.booleans())}
    return Thresholds(
        tiers=tuple(order),
        boundaries=tuple(boundaries),
        min_dwell_steps=draw(st.integers(1, 10_000)),
        min_accept_length=floors,
    )


commands = st.builds(
    RankCommand,
    mode=st.sampled_from(Mode),
    tier=st.none() | st.sampled_from(TIERS),
    thresholds=st.none() | thresholds(),
    off_flavour=st.none() | st.sampled_from(OffFlavour),
    epoch=st.integers(0, 2**31),
    generation=st.integers(0, 2**53),
    reason=st.sampled_from([SwitchReason.COMMAND, SwitchReason.LEASE_END]),
)


@given(commands)
def test_a_command_survives_the_journey_as_numbers(command: RankCommand) -> None:
    numbers = encode(command, TIERS)
    assert ours(numbers)
    assert all(isinstance(value, int | float) for value in numbers.values())
    assert decode(numbers, TIERS) == command


def test_sglangs_own_numbers_are_not_ours() -> None:
    assert not ours({"pp_max_micro_batch_size": 8})


@given(
    st.dictionaries(
        st.sampled_from([f"specdeck.{k}" for k in ("mode", "tier", "tiers", "up.0", "epoch")]),
        st.integers(-5, 99) | st.floats(allow_nan=True),
    )
)
def test_numbers_of_another_build_are_refused_and_never_guessed(
    numbers: dict[str, int | float],
) -> None:
    with pytest.raises(WireError):
        decode(numbers, TIERS)
