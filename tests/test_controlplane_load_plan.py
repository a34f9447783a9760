"""Plans, bounds and targets of the load generator."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controlplane.load_plan import Bounds, LoadPhase, LoadPlan, PlanError, Target, Work

PHASES = st.lists(
    st.fixed_dictionaries(
        {
            "concurrency": st.integers(1, 1024),
            "requests": st.lists(
                st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)), min_size=1, max_size=5
            ),
        }
    ),
    min_size=1,
    max_size=4,
)


@given(PHASES)
def test_any_plan_in_the_shared_format_is_read_as_written(
    phases: list[dict[str, object]],
) -> None:
    plan = LoadPlan.parse(json.dumps({"phases": phases}))
    assert json.loads(plan.model_dump_json(exclude_defaults=True)) == json.loads(
        json.dumps({"phases": phases})
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("not json", "the file"),
        ("{}", "phases"),
        ('{"phases": []}', "phases"),
        ('{"phases": [{"concurrency": 0, "requests": [[1, 1]]}]}', "phases.0.concurrency"),
        ('{"phases": [{"concurrency": 4, "requests": []}]}', "phases.0.requests"),
        ('{"phases": [{"concurrency": 4, "requests": [[1, 0]]}]}', "phases.0.requests.0.1"),
        ('{"phases": [{"concurrency": 4, "requests": [[1]]}]}', "phases.0.requests.0"),
        ('{"phases": [{"concurrency": 4, "requests": [[1, 1]], "x": 1}]}', "phases.0.x"),
    ],
)
def test_a_bad_plan_is_refused_with_the_place_of_the_mistake(text: str, place: str) -> None:
    with pytest.raises(PlanError, match=f"^phases: {place}.*: "):
        LoadPlan.parse(text)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:30000", "http://localhost:1", "http://[::1]:8000", "http://127.9.9.9:80"],
)
def test_this_machine_is_a_target(url: str) -> None:
    assert Target.parse(url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:30000",
        "http://example.org",
        "http://0.0.0.0:1",
        "http://127.0.0.1.example.org:1",
        "http://[::ffff:10.0.0.1]:1",
    ],
)
def test_another_machine_is_refused_unless_allowed(url: str) -> None:
    with pytest.raises(PlanError, match=r"is not this machine.*--allow-remote"):
        Target.parse(url)
    assert not Target.parse(url, allow_remote=True).loopback


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:30000", "write it as http://HOST:PORT"),
        ("ftp://127.0.0.1", "write it as http://HOST:PORT"),
        ("http://127.0.0.1:99999", "port"),
        ("http://me:secret@127.0.0.1:1", "no user"),
        ("http://127.0.0.1:1/?x=1", "query"),
    ],
)
def test_what_is_no_target_is_refused_without_repeating_secrets(url: str, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        Target.parse(url)
    assert "secret" not in str(caught.value)


def test_a_path_in_front_of_the_server_is_kept() -> None:
    target = Target.parse("https://127.0.0.1/engines/a/")
    assert (target.port, target.prefix, target.tls) == (443, "/engines/a", True)


def test_more_requests_than_the_bound_are_refused_before_anything_is_sent() -> None:
    plan = LoadPlan(phases=(LoadPhase(concurrency=1, requests=((1, 1),) * 3),))
    with pytest.raises(ValidationError, match="3 requests, more than the bound of 2"):
        Work(plan=plan, bounds=Bounds(max_requests=2))
    assert Work(plan=plan, bounds=Bounds(max_requests=2), repeat=True).repeat


def test_bounds_have_a_ceiling_of_their_own() -> None:
    for wrong in ({"max_requests": 10**9}, {"max_seconds": 1e9}, {"request_timeout_s": 1e9}):
        with pytest.raises(ValidationError):
            Bounds(**wrong)  # type: ignore[arg-type]
