"""Load that goes on until it is told otherwise: a process of its own beside what measures.

``python -m controlplane.load_flow`` reads ``FlowSettings``, then ``FlowOrder`` lines from stdin and
writes a ``FlowHello``, then a ``FlowReport`` each tenth of a second to stdout.  It ends when stdin
ends, so that no load outlives whoever asked for it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from pydantic import ValidationError

from controlplane.load_clients import Flow, now_ms
from controlplane.load_plan import PlanError, Target
from controlplane.load_prompts import Prompts, PromptsError, make
from controlplane.load_reports import REPORT_EVERY_S, FlowHello, FlowOrder, FlowSettings

SAFE_VOCABULARY = 256
"""Ids that every vocabulary holds: one beyond it ends SGLang (0.5.23, without a tokenizer)."""
HEARTBEAT_S = 0.02


async def hello(target: Target, settings: FlowSettings) -> tuple[Prompts | None, FlowHello]:
    """Try one short request; falls back to token ids where the server takes no text."""
    chosen = make(settings.prompts, settings.input_len, settings.output_len, settings.seed)
    words = chosen.words
    trial = Flow(target, settings, chosen)
    record = await trial.try_one()
    if record.error.startswith("BadAnswerError") and chosen.needs_tokenizer:
        refused = record.error
        if settings.prompts != "builtin":
            return None, FlowHello(problem=f"the server takes no text ({refused}): use ids")
        few = f"ids:{SAFE_VOCABULARY}"
        chosen = make(few, settings.input_len, settings.output_len, settings.seed)
        words = f"{chosen.words} (the server takes no text)"
        trial = Flow(target, settings, chosen)
        record = await trial.try_one()
    if record.error:
        return None, FlowHello(problem=f"{target.url} does not serve /generate: {record.error}")
    return chosen, FlowHello(prompts=words, mean_output=chosen.mean_output)


async def _heartbeat(flow: Flow) -> None:
    while True:
        due = now_ms() + HEARTBEAT_S * 1000
        await asyncio.sleep(HEARTBEAT_S)
        flow.lags_ms.append(max(now_ms() - due, 0.0))


async def _reporting(flow: Flow) -> None:
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        _print(flow.report().model_dump_json())


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _orders(reader: asyncio.StreamReader, flow: Flow) -> None:
    while line := await reader.readline():
        await flow.obey(FlowOrder.model_validate_json(line))


async def serve() -> int:
    """Obey stdin until it ends."""
    reader = asyncio.StreamReader(limit=2**20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        settings = FlowSettings.model_validate_json(await reader.readline())
        target = Target.parse(settings.url, allow_remote=True)
        prompts, said = await hello(target, settings)
    except (ValidationError, PlanError, PromptsError) as error:
        prompts, said = None, FlowHello(problem=str(error))
    _print(said.model_dump_json())
    if prompts is None:
        return 1
    flow = Flow(target, settings, prompts)
    tasks = [
        asyncio.create_task(_orders(reader, flow)),
        asyncio.create_task(_heartbeat(flow)),
        asyncio.create_task(_reporting(flow)),
    ]
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=settings.max_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await flow.close()
    return 0


def main() -> int:
    """Run until stdin ends."""
    try:
        return asyncio.run(serve())
    except (KeyboardInterrupt, BrokenPipeError):
        # Whoever reads us has gone: nothing is left to report to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
