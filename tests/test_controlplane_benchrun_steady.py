"""How long a request takes, known before it has ended, and whether a window holds one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.benchrun_steady import ENOUGH_REQUESTS, request_s, saw_a_request, short_of_s
from controlplane.load_reports import FlowReport, FlowRequest


def reports(
    tok_s: float, clients: int, seconds: float, ended: int = 0
) -> tuple[FlowReport, FlowReport]:
    """A window's first and last report."""
    finished = (FlowRequest(sent_ms=0, done_ms=1),) * ended
    first = FlowReport(at_ms=0, tokens=0, in_flight=clients, decoding=clients, warm=clients)
    last = first.model_copy(
        update={
            "at_ms": seconds * 1000,
            "tokens": round(tok_s * seconds),
            "finished": finished,
        }
    )
    return first, last


@given(
    st.integers(1, 1024), st.floats(10, 1e5), st.floats(0.5, 60), st.floats(1, 1e5), st.booleans()
)
def test_a_window_is_long_enough_from_a_requests_time_or_enough_requests_on(
    clients: int, tok_s: float, seconds: float, mean_output: float, many: bool
) -> None:
    seen = reports(tok_s, clients, seconds, ENOUGH_REQUESTS if many else 0)
    takes = request_s(seen, mean_output)
    assert takes == pytest.approx(clients * mean_output / tok_s, rel=0.2)
    short = short_of_s(seen, mean_output)
    if many or seconds > 1.3 * takes:
        assert short is None
        assert saw_a_request(seen, mean_output)
    elif seconds < 0.7 * takes:
        assert short == takes
        assert not saw_a_request(seen, mean_output)


def test_nothing_is_said_before_a_token_was_seen() -> None:
    first, last = reports(0, 4, 2.0)
    for seen in ((), (first,), (first, last), (last, first)):
        assert request_s(seen, 100) is None
        assert short_of_s(seen, 100) is None
        assert not saw_a_request(seen, 100)
