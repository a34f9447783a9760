"""A server under test with its ``/speculation`` at hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import httpx

from engine_patch.contract import ReplicaState, SpeculationState
from tests.engine.cpu_engine import CpuEngine

NO_JOURNAL = 10**12
"""As ``since``: hundreds of entries cost more to write and read than all else."""


class PluginClient:
    """Sends commands as one holder, with rising generations.

    Args:
        headers: sent with every request.
    """

    def __init__(self, engine: CpuEngine, headers: dict[str, str] | None = None) -> None:
        self.engine = engine
        self.http = httpx.Client(base_url=engine.url, headers=headers, timeout=30)
        self._headers = headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def state(self, since: int = 0) -> SpeculationState:
        """``GET /speculation``."""
        answer = self.http.get("/speculation", params={"since": since})
        assert answer.status_code == 200, answer.text
        return SpeculationState.model_validate_json(answer.content)

    def replica(self) -> ReplicaState:
        """The first replica."""
        return self.state(NO_JOURNAL).replicas[0]

    def put(self, mode: str, holder: str = "suite", **more: Any) -> httpx.Response:
        """``PUT /speculation``; order is the next one unless given."""
        if "epoch" not in more:
            now = self.state(NO_JOURNAL)
            more |= {"epoch": now.epoch, "generation": now.generation + 1}
        return self.http.put("/speculation", json={"mode": mode, "holder": holder, **more})

    def command(self, mode: str, **more: Any) -> dict[str, Any]:
        """A command that must be taken."""
        answer = self.put(mode, **more)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def ask_for(self, tier: str, **more: Any) -> None:
        """Command a tier, off included."""
        self.command("off" if tier == "off" else "on", tier=None if tier == "off" else tier, **more)

    def runs(self, tier: str) -> bool:
        """Whether every rank of every replica reports a tier and the newest order."""
        now = self.state(NO_JOURNAL)
        return all(
            rank.observed
            and rank.tier == tier
            and (rank.applied_epoch, rank.applied_generation) == (now.epoch, now.generation)
            for replica in now.replicas
            for rank in replica.ranks
        )

    def wait_runs(self, tier: str, within_s: float = 30.0) -> None:
        """Wait until every rank runs a tier."""
        self.wait(lambda: self.runs(tier), f"every rank runs {tier}", within_s)

    def wait(self, condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
        """Wait for a condition."""
        end = time.monotonic() + within_s
        while not condition():
            if time.monotonic() >= end:
                raise AssertionError(f"not within {within_s} s: {what}; {self.state(NO_JOURNAL)}")
            time.sleep(0.02)

    def continued(self, prompt: list[int], *, new_tokens: int) -> tuple[int, int]:
        """Answer a prompt, then send it again with its answer.

        Returns:
            Tokens that were sent the second time, and how many of them the prefix cache held.
        """

        def answer(tokens: list[int], new_tokens: int) -> dict[str, Any]:
            params = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
            body = {"input_ids": tokens, "sampling_params": params}
            found: dict[str, Any] = self.http.post("/generate", json=body).json()
            return found

        longer = prompt + answer(prompt, new_tokens)["output_ids"]
        return len(longer), answer(longer, 2)["meta_info"]["cached_tokens"]

    @contextmanager
    def load(
        self, prompts: Sequence[str], *, clients: int, new_tokens: int
    ) -> Iterator[dict[str, list[int]]]:
        """Clients that ask again and again until the block ends; gives their last answers."""
        stop, answers = threading.Event(), dict[str, list[int]]()
        failures: list[BaseException] = []

        def client(number: int) -> None:
            turn = number
            try:
                while not stop.is_set():
                    prompt = prompts[turn % len(prompts)]
                    (answer,) = self.engine.generate([prompt], new_tokens=new_tokens)
                    answers[prompt] = answer["output_ids"]
                    turn += clients
            except BaseException as failure:  # noqa: BLE001  # shown by the block's end
                failures.append(failure)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield answers
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures, failures
