"""What SGLang's router says of its workers.  The answers are constructed after its source code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import SourceError
from controlplane.router_workers import read_workers

pytestmark = pytest.mark.constructed


def worker(url: str, **more: Any) -> dict[str, Any]:
    """As ``GET /workers`` of the Model Gateway lists one (constructed)."""
    return {
        "id": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "url": url,
        "model_id": "llama",
        "priority": 50,
        "cost": 1.0,
        "worker_type": "regular",
        "is_healthy": True,
        "load": 3,
        "connection_mode": "http",
    } | more


def body(*workers: dict[str, Any]) -> bytes:
    stats = {"prefill_count": 0, "decode_count": 0, "regular_count": len(workers)}
    return json.dumps({"workers": workers, "total": len(workers), "stats": stats}).encode()


def test_the_workers_of_a_gateway_are_its_engines() -> None:
    found = read_workers(body(worker("http://a:30000"), worker("http://b:30000/")))
    assert found.urls == ("http://a:30000", "http://b:30000")
    assert found.skipped == ()


def test_an_earlier_router_lists_urls_alone() -> None:
    assert read_workers(b'{"urls": ["http://a:1", "http://b:2"]}').urls == (
        "http://a:1",
        "http://b:2",
    )


def test_dp_ranks_of_one_engine_are_one_engine() -> None:
    found = read_workers(body(worker("http://a:1@0"), worker("http://a:1@1")))
    assert found.urls == ("http://a:1",)


def test_an_unhealthy_worker_is_still_an_engine() -> None:
    assert read_workers(body(worker("http://a:1", is_healthy=False))).urls == ("http://a:1",)


def test_what_cannot_be_looked_after_is_skipped_with_its_reason() -> None:
    found = read_workers(
        body(
            worker("http://p:1", worker_type="prefill", bootstrap_port=8998),
            worker("http://d:1", worker_type="decode"),
            worker("grpc://g:1", connection_mode="grpc"),
            worker("http://h:1", connection_mode="Grpc { port: Some(1) }"),
            worker("http://v:1", runtime_type="vllm"),
            worker("http://s:1", runtime_type="sglang", connection_mode="Http"),
            worker(""),
        )
    )
    assert found.urls == ("http://d:1", "http://s:1")
    assert len(found.skipped) == 5
    assert "prefill" in found.skipped[0]
    assert "gRPC" in found.skipped[1]
    assert "vllm" in found.skipped[3]


@pytest.mark.parametrize("answer", [b"", b"[]", b"hello", b"{}", b'{"workers": 3}', b"null"])
def test_what_is_no_list_of_workers_is_said_so(answer: bytes) -> None:
    with pytest.raises(SourceError, match="url that of a router"):
        read_workers(answer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.lists(JSON | st.fixed_dictionaries({"url": JSON, "worker_type": JSON})))
def test_any_list_is_read(listed: list[Any]) -> None:
    found = read_workers(json.dumps({"workers": listed}).encode())
    assert all(found.urls)
    assert len(set(found.urls)) == len(found.urls)
