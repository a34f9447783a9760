"""``/generate`` and ``/v1/completions``: SGLang's and OpenAI's shapes around made-up tokens.

Output tokens are counted, not computed: the n-th is the word ``tok`` (id 1000 + n).  A text prompt
counts one token per four characters.  ``stop``, sampling and log probabilities have no effect.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine_patch.embedded.host import Answer, Host
from engine_patch.embedded.requests import Request

FIRST_ID = 1000
WORD = " tok"
Body = TypeVar("Body", bound=BaseModel)
CHARACTERS_PER_TOKEN = 4


class SamplingParams(BaseModel):
    """The part of SGLang's sampling parameters that has an effect here."""

    model_config = ConfigDict(extra="ignore")
    max_new_tokens: int = Field(default=128, ge=1)
    ignore_eos: bool = False
    stream_interval: int | None = Field(default=None, ge=1)


class GenerateBody(BaseModel):
    """Body of ``POST /generate``, one request; batches are not served."""

    model_config = ConfigDict(extra="ignore")
    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False
    rid: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        if self.input_ids is not None:
            return len(self.input_ids)
        return tokens_of(self.text or "")


class StreamOptions(BaseModel):
    """OpenAI's stream options."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class CompletionBody(BaseModel):
    """Body of ``POST /v1/completions``, one prompt."""

    model_config = ConfigDict(extra="ignore")
    model: str | None = None
    prompt: str | list[int]
    max_tokens: int = Field(default=16, ge=1)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    ignore_eos: bool = False

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return tokens_of(self.prompt) if isinstance(self.prompt, str) else len(self.prompt)


def tokens_of(text: str) -> int:
    """Tokens a text counts for."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def words(first: int, last: int) -> str:
    """The text of output tokens ``first`` (from 0) up to ``last``."""
    return WORD * (last - first)


@dataclass(frozen=True)
class Job:
    """A request under way, with the boot that runs it."""

    host: Host
    request: Request
    answer: Answer
    name: str
    received: float

    async def left(self) -> None:
        """Wait for the end."""
        await self.answer.left
        self.host.answering(self.request)

    def meta(self, tokens: int) -> dict[str, Any]:
        """SGLang's ``meta_info`` of an answer with so many tokens."""
        request, host = self.request, self.host
        meta: dict[str, Any] = {
            "id": self.name,
            "finish_reason": self.finish_reason(),
            "prompt_tokens": request.prompt,
            "weight_version": "default",
            "num_retractions": request.retractions,
            "completion_tokens": tokens,
            "cached_tokens": 0,
            "dp_rank": None,
            "specdeck_simulated": host.options.config.table.name,
            "request_received_ts": self.received,
        }
        if request.forward_ms is not None:
            meta["queue_time"] = (request.forward_ms - request.arrival_ms) / 1000
            meta["forward_entry_time"] = host.wall_s(request.forward_ms)
        if request.first_token_ms is not None:
            meta["prefill_finished_time"] = host.wall_s(request.first_token_ms)
        if request.finish_ms is not None:
            meta["e2e_latency"] = (request.finish_ms - request.arrival_ms) / 1000
            meta["request_finished_ts"] = host.wall_s(request.finish_ms)
        if request.verifies:
            meta |= {
                "spec_verify_ct": request.verifies,
                "spec_accept_length": request.emitted / request.verifies,
                "spec_accept_rate": request.accepted / request.proposed,
                "spec_num_correct_drafts": request.accepted,
                "spec_num_proposed_drafts": request.proposed,
                "spec_accepted_drafts": request.accepted,
                "spec_proposed_drafts": request.proposed,
            }
        return meta

    def finish_reason(self) -> dict[str, Any] | None:
        """Why it ended, None while it runs."""
        if not self.request.done:
            return None
        if self.request.failure:
            return {"type": "abort", "message": self.request.failure}
        return {"type": "length", "length": self.request.emitted}

    def failure(self) -> Response:
        """The answer to a request that was aborted."""
        return _problem(self.request.failure, 503)

    async def progress(self) -> AsyncIterator[tuple[int, int, bool]]:
        """Tokens as they come: (sent so far, now there, done)."""
        sent = 0
        try:
            while True:
                await self.answer.news.wait()
                self.answer.news.clear()
                done = self.request.done
                # On a busy host the engine decodes on before this is read.
                now = self.request.emitted if done else self.request.told
                if done:
                    self.host.answering(self.request)
                if now > sent or done:
                    yield sent, now, done
                if done:
                    return
                sent = now
        finally:
            if not self.request.done:
                for engine in self.host.engines:
                    if self.request in engine.running:
                        engine.cut(self.request)


def generation_routes(host: Callable[[], Host]) -> list[Route]:
    """The routes; ``host`` gives the present boot."""

    async def generate(http: HttpRequest) -> Response:
        body = await _read(http, GenerateBody)
        if isinstance(body, Response):
            return body
        if (body.text is None) == (body.input_ids is None):
            return _problem("give either text or input_ids, one prompt")
        params = body.sampling_params
        job = _start(
            host(),
            body.prompt_tokens,
            params.max_new_tokens,
            ignore_eos=params.ignore_eos,
            part=(params.stream_interval or 1) if body.stream else 0,
            name=body.rid or uuid.uuid4().hex,
        )
        if isinstance(job, Response):
            return job
        if body.stream:
            return _sse(_generate_events(job))
        await job.left()
        if job.request.failure:
            return job.failure()
        return JSONResponse(_generated(job, job.request.emitted))

    async def complete(http: HttpRequest) -> Response:
        body = await _read(http, CompletionBody)
        if isinstance(body, Response):
            return body
        job = _start(
            host(),
            body.prompt_tokens,
            body.max_tokens,
            ignore_eos=body.ignore_eos,
            part=int(body.stream),
            name=f"cmpl-{uuid.uuid4().hex}",
        )
        if isinstance(job, Response):
            return job
        if body.stream:
            usage = body.stream_options.include_usage
            return _sse(_completion_events(job, include_usage=usage))
        await job.left()
        if job.request.failure:
            return job.failure()
        text = words(0, job.request.emitted)
        return JSONResponse(_completion(job, text, "length") | {"usage": _usage(job)})

    return [
        Route("/generate", generate, methods=["POST", "PUT"]),
        Route("/v1/completions", complete, methods=["POST"]),
    ]


async def _read(http: HttpRequest, kind: type[Body]) -> Body | Response:
    try:
        return kind.model_validate_json(await http.body())
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        return _problem("; ".join(problems))


def _start(
    host: Host, prompt: int, output: int, *, ignore_eos: bool, part: int, name: str
) -> Job | Response:
    received = time.time()
    try:
        request, answer = host.submit(prompt, output, ignore_eos=ignore_eos, part=part)
    except ValueError as error:
        return _problem(str(error))
    return Job(host, request, answer, name, received)


def _problem(message: str, status: int = 400) -> Response:
    return JSONResponse({"error": {"message": message}}, status)


def _generated(job: Job, tokens: int) -> dict[str, Any]:
    return {
        "text": words(0, tokens),
        "output_ids": list(range(FIRST_ID, FIRST_ID + tokens)),
        "meta_info": job.meta(tokens),
    }


def _completion(job: Job, text: str, finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": job.name,
        "object": "text_completion",
        "created": int(job.received),
        "model": job.host.state.identity.model,
        "choices": [choice],
    }


def _usage(job: Job) -> dict[str, int]:
    prompt, output = job.request.prompt, job.request.emitted
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }


async def _generate_events(job: Job) -> AsyncIterator[Any]:
    async for _, now, _ in job.progress():
        yield _generated(job, now)


async def _completion_events(job: Job, *, include_usage: bool) -> AsyncIterator[Any]:
    async for sent, now, done in job.progress():
        if job.request.failure:
            yield {"error": {"message": job.request.failure}}
            return
        yield _completion(job, words(sent, now), "length" if done else None)
    if include_usage:
        yield _completion(job, "", None) | {"choices": [], "usage": _usage(job)}


def _sse(events: AsyncIterator[Any]) -> Response:
    async def lines() -> AsyncIterator[str]:
        async for event in events:
            yield f"data: {json.dumps(event, separators=(',', ':'))}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
