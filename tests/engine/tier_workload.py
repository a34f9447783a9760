"""Requests of every kind a server gets, compared with what the plain server answered.

Prompts of 1 to 120 words, answers of 1 to 160 tokens, staggered; plain, streamed, with
log-probabilities, with a stop string, under a regular expression, and aborted on the way.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx

Kind = Literal["text", "stream", "logprob", "stop", "regex", "abort"]
KINDS: tuple[Kind, ...] = ("text", "text", "stream", "logprob", "stop", "regex", "abort")
# fmt: off
WORDS = (
    "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "tiny", "model",
    "0", "1", "2", "3", "+", "-", "*", "/", "?", "!",
)
# fmt: on
LENGTHS = (1, 2, 3, 5, 7, 12, 20, 33, 50, 64, 90, 120)
ANSWERS = (1, 2, 5, 17, 40, 90, 160)
TIE = 2e-3
"""Difference of log-probabilities below which two candidates count as tied."""
STEP = 4
"""Most tokens that one step of the tested tiers yields."""
LOGPROB_GAP = 1e-3
"""Largest difference of two log-probabilities of the same token in float32."""


@dataclass(frozen=True)
class Job:
    """One request.

    Args:
        stop: for kind "stop": a text that the plain answer contains.
    """

    number: int
    kind: Kind
    prompt: str
    new_tokens: int
    stop: str = ""

    def body(self) -> dict[str, Any]:
        """The request as SGLang takes it."""
        params: dict[str, Any] = {
            "max_new_tokens": self.new_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        if self.kind == "regex":
            params |= {"regex": "([a-z]{2,6} )*", "ignore_eos": False}
        if self.kind == "stop" and self.stop:
            params["stop"] = [self.stop]
        body: dict[str, Any] = {"text": self.prompt, "sampling_params": params}
        if self.kind == "logprob":
            body["return_logprob"] = True
        if self.kind == "stream":
            body["stream"] = True
        return body


@dataclass(frozen=True)
class Outcome:
    """What came back: token ids, text, log-probabilities, and whether it was aborted."""

    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...] = ()
    aborted: bool = False


def jobs(seed: int, count: int) -> list[Job]:
    """``count`` jobs of all kinds in a random order that ``seed`` fixes."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        prompt = " ".join(rng.choice(WORDS) for _ in range(rng.choice(LENGTHS)))
        kind = KINDS[number % len(KINDS)]
        answer = 160 if kind == "abort" else rng.choice(ANSWERS)
        made.append(Job(number, kind, prompt, 40 if kind in ("stop", "regex") else answer))
    rng.shuffle(made)
    return made


def without_ties(url: str, asked: Sequence[Job]) -> list[Job]:
    """The same jobs, each cut before the first token whose two best candidates nearly tie.

    Such a token may turn out differently when the same server batches it differently, so it would
    prove nothing.
    """
    cut = []
    with httpx.Client(base_url=url, timeout=180) as client, ThreadPoolExecutor(8) as pool:

        def tops(job: Job) -> list[list[tuple[float, int, str | None]]]:
            body = replace(job, kind="logprob").body()
            body["top_logprobs_num"] = 2
            answer = _answer(client.post("/generate", json=body))
            found: list[list[tuple[float, int, str | None]]]
            found = answer["meta_info"]["output_top_logprobs"]
            return found

        for job, rows in zip(asked, pool.map(tops, asked), strict=True):
            clear = next(
                (at for at, (best, next_best) in enumerate(rows) if best[0] - next_best[0] < TIE),
                len(rows),
            )
            if clear:
                cut.append(replace(job, new_tokens=min(job.new_tokens, clear)))
    return cut


def with_stops(asked: Sequence[Job], plain: Sequence[Outcome]) -> list[Job]:
    """The same jobs, those of kind "stop" with a text out of the middle of the plain answer."""
    return [
        replace(job, stop=outcome.text[len(outcome.text) // 2 :][:3]) if job.kind == "stop" else job
        for job, outcome in zip(asked, plain, strict=True)
    ]


def run(url: str, asked: Sequence[Job], *, concurrency: int, aborts: bool) -> list[Outcome]:
    """Send the jobs, ``concurrency`` at a time.

    Args:
        aborts: whether those of kind "abort" are aborted on the way.
    """
    rng = random.Random(len(asked))
    waits = [rng.random() * 0.02 for _ in asked]
    with httpx.Client(base_url=url, timeout=180) as client, ThreadPoolExecutor(concurrency) as pool:

        def one(place: int) -> Outcome:
            time.sleep(waits[place])
            return _ask(client, asked[place], abort=aborts and asked[place].kind == "abort")

        return list(pool.map(one, range(len(asked))))


def _ask(client: httpx.Client, job: Job, *, abort: bool) -> Outcome:
    if job.kind == "stream":
        return _stream(client, job)
    if not abort:
        return _outcome(_answer(client.post("/generate", json=job.body())))
    # A name of its own each time: SGLang ends a stream by aborting its name two seconds later.
    body = job.body() | {"rid": uuid.uuid4().hex}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/generate", json=body)
        time.sleep(0.15)
        client.post("/abort_request", json={"rid": body["rid"]})
        return _outcome(_answer(waiting.result()))


def _answer(reply: httpx.Response) -> dict[str, Any]:
    reply.raise_for_status()
    answer: dict[str, Any] = reply.json()
    return answer


def _stream(client: httpx.Client, job: Job) -> Outcome:
    last: dict[str, Any] = {}
    with client.stream("POST", "/generate", json=job.body()) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                text, had = chunk["text"], last.get("text", "")
                assert text.startswith(had), f"the stream took back {had!r} for {text!r}"
                last = chunk
    return _outcome(last)


def _outcome(answer: dict[str, Any]) -> Outcome:
    meta = answer["meta_info"]
    return Outcome(
        tokens=tuple(answer["output_ids"]),
        text=answer["text"],
        logprobs=tuple(item[0] for item in meta.get("output_token_logprobs") or ()),
        aborted=(meta.get("finish_reason") or {}).get("type") == "abort",
    )


def differences(
    asked: Sequence[Job], plain: Sequence[Outcome], got: Sequence[Outcome]
) -> list[str]:
    """What differs from the plain server's answers, in words; empty if nothing does."""
    wrong = []
    for job, expected, found in zip(asked, plain, got, strict=True):
        if found.aborted:
            # SGLang cuts an answer at its limit unless it is aborted in the very step that reaches
            # it; what a step yields beyond the limit the plain server never said.
            common = min(len(found.tokens), job.new_tokens)
            same = found.tokens[:common] == expected.tokens[:common]
            same = same and len(found.tokens) < job.new_tokens + STEP
        elif job.kind == "stop":
            # How many tokens beyond a stop string are returned depends on the tokens per step.
            same = found.text == expected.text
        else:
            same = found.tokens == expected.tokens
        if not same:
            wrong.append(f"{job}: {found.tokens} where {expected.tokens} was expected")
        elif any(
            abs(a - b) > LOGPROB_GAP
            for a, b in zip(expected.logprobs, found.logprobs, strict=False)
        ):
            wrong.append(f"{job}: log-probabilities differ")
    return wrong
