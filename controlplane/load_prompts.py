"""What a flow sends: bodies of ``/generate`` from a built-in mix, files, or token ids."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

CHARACTERS_PER_TOKEN = 4
"""How many characters a token holds on average, where a text must be cut to a length in tokens."""
FIRST_ID, LAST_ID = 1000, 30_000
"""Ids every common vocabulary holds, special ones left out."""
MOST_FILE_BYTES = 512 * 2**20
VARIED = 0.25
"""How far answers are longer or shorter than asked for, as a share.

Answers of one length fall in step: an engine admits whoever waits together, and they end together.
Prefill then interrupts fewer steps from minute to minute.  On an H200 (SGLang 0.5.17, 8B shape,
triton, 128 clients, 256 tokens) four windows of one tier, one after the other, rose from 12,046 to
15,317 tok/s.
"""
DECK = 16
"""Answers whose lengths together have the mean that was asked for."""
KINDS = "builtin, ids, ids:VOCABULARY, sharegpt:FILE, lengths:[VOCABULARY:]FILE"

MIX = (
    "Explain to a new colleague why the nightly backup takes longer each week, and what to check.",
    "Write a Python function that merges overlapping time intervals, with tests for the edges.",
    "Summarise in five sentences: the committee met twice, heard three reports about the bridge, "
    "and could not agree whether to repair it or to build another one further down the river.",
    "Translate into German: the parcel was left with the neighbours because nobody was at home.",
    "A tank holds 240 litres and loses two per cent a day. After how many days is half of it gone? "
    "Show each step.",
    "List ten questions an engineer should ask before a database is moved to another region.",
    "Continue the story: the lighthouse keeper counted the ships every evening, and one evening "
    "there was one more than had sailed in.",
    "Given this JSON, write the SQL that creates a table for it: "
    '{"id": 7, "name": "pump", "readings": [{"at": "2026-01-02", "bar": 3.1}]}',
)
"""Chat, code, summary, translation, arithmetic, list, prose and data: what a mixed service sees."""


class PromptsError(ValueError):
    """The prompts cannot be used; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request's content; exactly one of ``text`` and ``ids`` is used."""

    text: str | None
    ids: str
    output: int

    def body(self, output: int, stream_interval: int = 1) -> bytes:
        """The streamed request for ``output`` tokens, in parts of ``stream_interval`` or more."""
        given = f'"text":{json.dumps(self.text)}' if self.text is not None else self.ids
        # Only where it is asked for: a server may not know it.
        parts = "" if stream_interval == 1 else f',"stream_interval":{stream_interval}'
        return (
            f'{{{given},"stream":true,"sampling_params":{{"temperature":0,'
            f'"max_new_tokens":{output},"ignore_eos":true{parts}}}}}'
        ).encode()


@dataclass(frozen=True)
class Prompts:
    """An endless supply.

    Args:
        words: what is sent, for people.
        needs_tokenizer: texts, which a server without a tokenizer refuses.
        mean_output: output tokens per request on average.
    """

    words: str
    needs_tokenizer: bool
    mean_output: float
    supply: Iterator[Prompt]

    def next(self) -> Prompt:
        """The next one; no two share a beginning, lest a prefix cache answers."""
        return next(self.supply)


def make(kind: str, input_len: int, output_len: int, seed: int) -> Prompts:
    """The supply that ``kind`` names.

    Raises:
        PromptsError: no such kind, or its file cannot be read.
    """
    generator = random.Random(f"{seed}/prompts")
    name, _, rest = kind.partition(":")
    lengths = f"{input_len} tokens in, {output_len} ± {round(output_len * VARIED)} out"
    if name == "builtin" and not rest:
        supply = _mix(generator, input_len, output_len)
        return Prompts(f"built-in mix, about {lengths}", True, output_len, supply)
    if name == "ids":
        top = LAST_ID if not rest else _vocabulary(rest)
        pairs = ((input_len, output) for output in varied(generator, output_len))
        supply = _ids(generator, pairs, top)
        return Prompts(f"random token ids, {lengths}", False, output_len, supply)
    if name == "sharegpt" and rest:
        texts = sharegpt(Path(rest), output_len)
        words = f"{len(texts)} conversations of {Path(rest).name}"
        mean = fmean(output for _, output in texts)
        return Prompts(words, True, mean, _texts(generator, texts))
    if name == "lengths" and rest:
        first, colon, path = rest.partition(":")
        bounded = bool(colon) and first.isdecimal()
        top = _vocabulary(first) if bounded else LAST_ID
        file = Path(path if bounded else rest)
        known = recorded_lengths(file)
        words = f"random token ids, {len(known)} recorded lengths of {file.name}"
        mean = fmean(output for _, output in known)
        return Prompts(words, False, mean, _ids(generator, itertools.cycle(known), top))
    raise PromptsError(f"prompts {kind!r}: choose one of {KINDS}")


def varied(generator: random.Random, mean: int) -> Iterator[int]:
    """Lengths around a mean, evenly spread, in random order; each deck of them has the mean."""
    most = round(mean * VARIED)
    deck = [mean + round(most * (2 * place / (DECK - 1) - 1)) for place in range(DECK)]
    while True:
        yield from generator.sample(deck, DECK)


def _vocabulary(text: str) -> int:
    if not text.isdecimal() or not 3 <= int(text) <= 10_000_000:
        raise PromptsError(f"prompts ids:{text}: the vocabulary is a number of token ids above 2")
    return int(text)


def _ids(
    generator: random.Random, lengths: Iterator[tuple[int, int]] | Any, top: int
) -> Iterator[Prompt]:
    low = FIRST_ID if top > FIRST_ID else 2
    known = [str(number) for number in range(low, top)]
    for prompt, output in lengths:
        ids = ",".join(generator.choices(known, k=prompt))
        yield Prompt(None, f'"input_ids":[{ids}]', output)


def _mix(generator: random.Random, input_len: int, output_len: int) -> Iterator[Prompt]:
    size = input_len * CHARACTERS_PER_TOKEN
    for output in varied(generator, output_len):
        parts = [f"Case {generator.getrandbits(40):010x}."]
        while sum(map(len, parts)) < size:
            parts.append(generator.choice(MIX))
        yield Prompt(" ".join(parts)[: max(size, 16)], "", output)


def _texts(generator: random.Random, texts: list[tuple[str, int]]) -> Iterator[Prompt]:
    while True:
        for text, output in generator.sample(texts, len(texts)):
            yield Prompt(f"Case {generator.getrandbits(40):010x}. {text}", "", output)


def _read(path: Path) -> Any:
    try:
        if path.exists() and not path.is_file():
            raise PromptsError(f"{path}: not a file")
        if path.stat().st_size > MOST_FILE_BYTES:
            raise PromptsError(
                f"{path}: larger than {MOST_FILE_BYTES >> 20} MiB; take a part of it"
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise PromptsError(f"cannot read {path}: {reason}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise PromptsError(f"{path}: neither JSON nor JSON lines: {error}") from error


def sharegpt(path: Path, output_len: int) -> list[tuple[str, int]]:
    """First turn of each conversation, and the length of its answer in tokens.

    The file is a list of ``{"conversations": [{"value": ...}, ...]}``; the answer's length is
    counted in characters, four a token, and is at most ``output_len``.

    Raises:
        PromptsError: it cannot be read or holds no conversation.
    """
    rows = _read(path)
    found: list[tuple[str, int]] = []
    for row in rows if isinstance(rows, list) else []:
        turns = row.get("conversations") if isinstance(row, dict) else None
        listed = turns if isinstance(turns, list) else ()
        values = [turn.get("value") for turn in listed if isinstance(turn, dict)]
        match values[:2]:
            case [str(asked), str(answer)] if asked and answer:
                tokens = len(answer) // CHARACTERS_PER_TOKEN
                found.append((asked, min(max(tokens, 4), output_len)))
    if not found:
        raise PromptsError(
            f"{path}: no conversation with two turns; expected a list of "
            '{"conversations": [{"value": "..."}, {"value": "..."}]}'
        )
    return found


def recorded_lengths(path: Path) -> list[tuple[int, int]]:
    """(input, output) tokens of recorded requests: ``[[128, 256], ...]`` or one pair a line.

    Raises:
        PromptsError: it cannot be read, or a pair is not two numbers above 0.
    """
    rows = _read(path)
    found: list[tuple[int, int]] = []
    for number, row in enumerate(rows if isinstance(rows, list) else [], 1):
        if isinstance(row, dict):
            row = (row.get("input"), row.get("output"))
        good = isinstance(row, list | tuple) and len(row) == 2
        if not good or not all(type(one) is int and 1 <= one <= 1_000_000 for one in row):
            raise PromptsError(f"{path}: entry {number} is not a pair [input, output] of tokens")
        found.append((row[0], row[1]))
    if not found:
        raise PromptsError(f"{path}: no lengths in it; expected [[input, output], ...]")
    return found
