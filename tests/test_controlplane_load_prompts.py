"""What a flow sends."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.load_prompts import DECK, PromptsError, make, recorded_lengths, sharegpt


def bodies(kind: str, count: int = 4, seed: int = 1) -> list[dict[str, object]]:
    prompts = make(kind, 32, 64, seed)
    taken = [prompts.next() for _ in range(count)]
    return [json.loads(prompt.body(prompt.output)) for prompt in taken]


def answers(kind: str, count: int, output: int = 64) -> list[int]:
    """Output tokens asked for."""
    prompts = make(kind, 32, output, 1)
    return [prompts.next().output for _ in range(count)]


@pytest.mark.parametrize("kind", ["builtin", "ids"])
@pytest.mark.parametrize("output", [1, 2, 7, 64, 1000])
def test_answers_differ_in_length_lest_clients_fall_in_step(kind: str, output: int) -> None:
    sent = answers(kind, DECK * 4, output)
    assert sum(sent) == output * len(sent)
    assert min(sent) >= max(output * 0.7, 1)
    assert max(sent) <= output * 1.3
    if output >= DECK * 2:
        # In another order each time: the same order would keep clients in step as well.
        decks = {tuple(sent[begin : begin + DECK]) for begin in range(0, len(sent), DECK)}
        assert len(decks) == 4
        assert all(len(set(one)) == DECK for one in decks)


def test_the_built_in_mix_is_text_of_about_the_asked_length_without_a_shared_beginning() -> None:
    sent = bodies("builtin", 20)
    texts = [str(body["text"]) for body in sent]
    assert {len(text) for text in texts} == {32 * 4}
    assert len({text[:12] for text in texts}) == 20
    assert all(body["stream"] is True for body in sent)
    assert all(48 <= answer <= 80 for answer in answers("builtin", 20))


def test_token_ids_have_exactly_the_asked_length_and_stay_in_the_vocabulary() -> None:
    for body in bodies("ids:500"):
        ids = body["input_ids"]
        assert isinstance(ids, list)
        assert len(ids) == 32
        assert all(2 <= one < 500 for one in ids)
    assert bodies("ids") == bodies("ids")
    assert bodies("ids") != bodies("ids", seed=2)


def test_longer_parts_are_asked_for_only_where_they_are_wanted() -> None:
    prompt = make("ids", 4, 8, 1).next()
    assert "stream_interval" not in json.loads(prompt.body(8))["sampling_params"]
    assert json.loads(prompt.body(8, 4))["sampling_params"]["stream_interval"] == 4


def test_conversations_bring_their_own_answer_lengths(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    rows = [
        {"conversations": [{"value": "How far?"}, {"value": "x" * 100}]},
        {"conversations": [{"value": "Why?"}, {"value": "x" * 4000}]},
        {"conversations": [{"value": "alone"}]},
        {"other": 1},
    ]
    path.write_text(json.dumps(rows))
    assert sharegpt(path, 64) == [("How far?", 25), ("Why?", 64)]
    sent = bodies(f"sharegpt:{path}", 6)
    assert {str(body["text"]).rpartition(". ")[2] for body in sent} == {"How far?", "Why?"}
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert len(sharegpt(path, 64)) == 2


def test_recorded_lengths_are_sent_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "lengths.json"
    path.write_text('[[3, 7], {"input": 5, "output": 9}]')
    assert recorded_lengths(path) == [(3, 7), (5, 9)]
    sent = bodies(f"lengths:{path}", 3)
    assert [len(body["input_ids"]) for body in sent] == [3, 5, 3]  # type: ignore[arg-type]
    prompts = make(f"lengths:9:{path}", 1, 1, 1)
    assert prompts.mean_output == 8
    for _ in range(20):
        ids = json.loads(prompts.next().body(1))["input_ids"]
        assert all(2 <= one < 9 for one in ids)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("poems", "choose one of builtin, ids"),
        ("ids:two", "is a number of token ids"),
        ("sharegpt:/nowhere", "cannot read /nowhere: No such file"),
        ("sharegpt:FILE", "no conversation with two turns"),
        ("lengths:FILE", "entry 1 is not a pair"),
        ("lengths:TEXT", "neither JSON nor JSON lines"),
        ("lengths:1:TEXT", "is a number of token ids"),
        ("sharegpt:/dev/zero", "/dev/zero: not a file"),
        ("sharegpt:DEEP", "neither JSON nor JSON lines"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_what_can(
    kind: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "FILE").write_text('[{"conversations": []}]')
    (tmp_path / "TEXT").write_text("not json")
    (tmp_path / "DEEP").write_text("[" * 100_000)
    for name in ("FILE", "TEXT", "DEEP"):
        kind = kind.replace(name, str(tmp_path / name))
    with pytest.raises(PromptsError, match=words):
        make(kind, 8, 8, 1)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["conversations", "value", "input", "output"]), inner)
    ),
    max_leaves=12,
)


@given(_json, st.sampled_from(["sharegpt", "lengths"]))
def test_any_file_of_json_is_sent_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: object, kind: str
) -> None:
    path = tmp_path_factory.mktemp("prompts") / "file.json"
    path.write_text(json.dumps(content), encoding="utf-8-sig")
    with contextlib.suppress(PromptsError):
        prompts = make(f"{kind}:{path}", 8, 8, 1)
        assert prompts.mean_output >= 1
        assert json.loads(prompts.next().body(4))
