"""Clients that stream answers until they are told otherwise.

An event is only kept, not read: how many tokens it stands for is looked up when a report is due, so
that the cost per token stays that of reading its bytes.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

from controlplane.load_http import BadAnswerError, Connection, DroppedError, tls_context
from controlplane.load_plan import Target
from controlplane.load_prompts import Prompt, Prompts
from controlplane.load_reports import FlowOrder, FlowReport, FlowRequest, FlowSettings

BACK_OFF_S = 0.25
_COUNT = b'"completion_tokens":'


def now_ms() -> float:
    """The machine's monotonic clock: the same for every process of this machine."""
    return time.monotonic_ns() / 1e6


def tokens_in(event: bytes) -> int:
    """Output tokens that an event stands for: its ``completion_tokens``, 0 if it tells none."""
    at = event.find(_COUNT)
    if at < 0:
        return 0
    digits = event[at + len(_COUNT) : at + len(_COUNT) + 12].lstrip()
    number = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    return int(number) if number else 0


@dataclass(slots=True, eq=False)
class _Sender:
    """One connection and the request on it."""

    connection: Connection
    last: bytes = b""
    first_ms: float | None = None
    busy: bool = False
    warm: bool = False
    begun: bool = False
    settled: bool = False


@dataclass(slots=True)
class Flow:
    """The clients and what they have seen."""

    target: Target
    settings: FlowSettings
    prompts: Prompts
    senders: set[_Sender] = field(default_factory=set)
    done_tokens: int = 0
    finished: list[FlowRequest] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    async def obey(self, order: FlowOrder) -> None:
        """Change the load; clients that are too many leave at once."""
        if order.rate_s is not None or self._open():
            await self._end(0)
        if order.rate_s is not None:
            self._tasks.append(asyncio.create_task(self._arrive(order), name="open"))
            return
        await self._end(order.clients)
        missing = order.clients - len(self._tasks)
        # Clients that begin together would end together for ever: the first request of each one
        # is cut to another length.
        places = self._random.sample(range(missing), missing)
        for place in places:
            share = (place + 1) / missing
            self._tasks.append(asyncio.create_task(self._client(share), name="closed"))

    def report(self) -> FlowReport:
        """What happened since the last report."""
        senders = self.senders
        finished, self.finished = self.finished, []
        lags, self.lags_ms = self.lags_ms, []
        return FlowReport(
            at_ms=now_ms(),
            tokens=self.done_tokens + sum(tokens_in(one.last) for one in senders if one.busy),
            in_flight=sum(one.busy for one in senders),
            decoding=sum(one.busy and one.first_ms is not None for one in senders),
            warm=sum(one.warm for one in senders),
            settled=sum(one.settled for one in senders),
            finished=tuple(finished),
            cpu_s=time.process_time(),
            lags_ms=tuple(lags),
        )

    async def try_one(self) -> FlowRequest:
        """One short request on a connection of its own."""
        sender = self._sender()
        try:
            return await self._one(sender, self.prompts.next(), 2)
        finally:
            self._drop(sender)

    async def close(self) -> None:
        """End all load."""
        await self._end(0)

    def _open(self) -> bool:
        return any(task.get_name() == "open" for task in self._tasks)

    async def _end(self, keep: int) -> None:
        surplus, self._tasks = self._tasks[keep:], self._tasks[:keep]
        for task in surplus:
            task.cancel()
        await asyncio.gather(*surplus, return_exceptions=True)

    def _sender(self) -> _Sender:
        key = self.settings.api_key
        headers = {"authorization": f"Bearer {key}"} if key else {}
        target = self.target
        connection = Connection(
            target.host,
            target.port,
            tls=tls_context() if target.tls else None,
            prefix=target.prefix,
            headers=headers,
        )
        made = _Sender(connection)
        self.senders.add(made)
        return made

    def _drop(self, sender: _Sender) -> None:
        if sender.busy:
            self.done_tokens += tokens_in(sender.last)
        sender.connection.close()
        self.senders.discard(sender)

    async def _client(self, share: float) -> None:
        sender = self._sender()
        try:
            while True:
                prompt = self.prompts.next()
                output = prompt.output if sender.begun else max(round(prompt.output * share), 1)
                record = await self._one(sender, prompt, output)
                self.finished.append(record)
                sender.settled |= not record.error
                if record.error:
                    await asyncio.sleep(BACK_OFF_S)
        finally:
            self._drop(sender)

    async def _arrive(self, order: FlowOrder) -> None:
        assert order.rate_s is not None
        idle: list[_Sender] = []
        due = now_ms()

        async def one(sender: _Sender) -> None:
            sender.begun = True
            prompt = self.prompts.next()
            # Not in one line: a report takes the list away while the answer is awaited.
            record = await self._one(sender, prompt, prompt.output)
            self.finished.append(record)
            sender.settled |= not record.error
            idle.append(sender)

        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    due += self._random.expovariate(order.rate_s) * 1000
                    await asyncio.sleep(max(due - now_ms(), 0) / 1000)
                    self.lags_ms.append(max(now_ms() - due, 0.0))
                    if idle:
                        group.create_task(one(idle.pop()))
                    elif len(self.senders) < order.clients:
                        group.create_task(one(self._sender()))
                    else:
                        now = now_ms()
                        full = f"{order.clients} requests are in flight, the bound"
                        self.finished.append(FlowRequest(sent_ms=now, done_ms=now, error=full))
        finally:
            for sender in tuple(self.senders):
                self._drop(sender)

    async def _one(self, sender: _Sender, prompt: Prompt, output: int) -> FlowRequest:
        wire = sender.connection.encode(
            "POST", "/generate", prompt.body(output, self.settings.stream_interval)
        )
        cut, sender.begun = not sender.begun, True
        sender.last, sender.first_ms, sender.busy = b"", None, True
        sent = now_ms()
        error = ""
        try:
            async with asyncio.timeout(self.settings.request_timeout_s):
                try:
                    await self._stream(sender, wire)
                except DroppedError:
                    # An idle connection that the server closed: nothing was lost, send it again.
                    await self._stream(sender, wire)
        except TimeoutError:
            error = f"no answer within {self.settings.request_timeout_s:g} s"
        except (OSError, DroppedError, BadAnswerError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"[:200]
        if error:
            sender.connection.close()
        sender.busy = False
        tokens = tokens_in(sender.last)
        self.done_tokens += tokens
        meta = {} if error else _meta(sender.last)
        steps, length = meta.get("spec_verify_ct"), meta.get("spec_accept_length")
        verified = isinstance(steps, int) and steps > 0
        return FlowRequest(
            sent_ms=sent,
            first_ms=sender.first_ms,
            done_ms=now_ms(),
            output_tokens=tokens,
            accept_length=float(length) if verified and isinstance(length, int | float) else None,
            verify_steps=steps if isinstance(steps, int) else None,
            cut=cut,
            error=error,
        )

    async def _stream(self, sender: _Sender, wire: bytes) -> None:
        async for status, data in sender.connection.events(wire):
            if status != 200:
                raise BadAnswerError(f"HTTP {status}: {data[:160].decode(errors='replace')}")
            if data == b"[DONE]":
                continue
            sender.last = data
            if sender.first_ms is None and tokens_in(data):
                sender.first_ms = now_ms()
                sender.warm = True
        if sender.first_ms is None:
            # SGLang answers 200 to what it refuses later, with the error in the stream.
            said = sender.last[:160].decode(errors="replace") or "nothing"
            raise BadAnswerError(f"no token came, but: {said}")


def _meta(event: bytes) -> dict[str, object]:
    try:
        answer = json.loads(event)
    except ValueError:
        return {}
    meta = answer.get("meta_info") if isinstance(answer, dict) else None
    return meta if isinstance(meta, dict) else {}
