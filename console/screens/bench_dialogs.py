"""Starting, cancelling and applying a benchmark: each says what it will do, and asks."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError
from textual.widget import Widget
from textual.widgets import Input

from console.bench_words import apply_effect, cancel_effect, start_effect
from console.override import sent
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.bench_propose import Proposal
from controlplane.benchrun_apply import policy_request
from controlplane.benchrun_messages import BenchRequest, BenchStatus, CancelRequest
from controlplane.client import ControlPlaneClient
from controlplane.durations import parse_duration
from controlplane.messages import PolicyRequest
from store.policies import Stance

REFUSE, ALLOW = "give way", "measure beside it"


class StartBench(Dialog):
    """What to measure, and for how long."""

    heading = "Benchmark"
    act = "Start"

    def fields(self) -> list[tuple[str, Widget]]:
        """Loads, time, lengths, traffic, and why."""
        return [
            ("load", Input("1,4,16,64", id="load", compact=True, max_length=60)),
            ("for", Input("10m", id="budget", compact=True, max_length=12)),
            ("tokens", Input("128+256", id="tokens", compact=True, max_length=16)),
            ("traffic", self.choice([REFUSE, ALLOW], REFUSE, "traffic")),
            ("reason", self.reason()),
        ]

    def request(self) -> BenchRequest:
        """The request the fields describe; raises ``Incomplete`` with what is wrong."""
        try:
            loads = tuple(int(part) for part in self.value("load").split(","))
        except ValueError:
            raise Incomplete("load: write the concurrencies like 1,4,16") from None
        try:
            budget_s = parse_duration(self.value("budget"))
        except ValueError as error:
            raise Incomplete(str(error)) from None
        first, plus, second = self.value("tokens").partition("+")
        if not (plus and first.strip().isdecimal() and second.strip().isdecimal()):
            raise Incomplete("tokens: write input and output tokens like 128+256")
        try:
            return BenchRequest(
                concurrency=loads,
                budget_s=budget_s,
                input_len=int(first),
                output_len=int(second),
                allow_traffic=self.value("traffic") == ALLOW,
                author=self.author,
                reason=self.value("reason").strip()[:300],
            )
        except ValidationError as error:
            detail = error.errors(include_url=False, include_input=False)[0]
            raise Incomplete(str(detail["msg"]).removeprefix("Value error, ")) from None

    def effect(self) -> tuple[str, ...]:
        """What will happen to the engine meanwhile."""
        return start_effect(self.request(), self.scene)

    def sends(self) -> str:
        """The POST as it goes out."""
        return sent("POST", self.engine_id, "benchmarks", self.request())

    async def send(self) -> None:
        """Start it."""
        await self.client.start_benchmark(self.engine_id, self.request())


class CancelBench(Dialog):
    """End the running benchmark."""

    heading = "Cancel the benchmark of"
    act = "End it"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        running: BenchStatus,
    ) -> None:
        super().__init__(client, present, author)
        self._bench = running

    def fields(self) -> list[tuple[str, Widget]]:
        """Why."""
        return [("reason", self.reason())]

    def request(self) -> CancelRequest:
        """The request the fields describe."""
        return CancelRequest(author=self.author, reason=self.value("reason").strip())

    def effect(self) -> tuple[str, ...]:
        """What becomes of the engine and of what was measured."""
        return cancel_effect(self._bench)

    def sends(self) -> str:
        """The DELETE as it goes out."""
        path = f"benchmarks/{self._bench.id}"
        return sent("DELETE", self.engine_id, path, self.request())

    async def send(self) -> None:
        """End it."""
        await self.client.cancel_benchmark(self.engine_id, self._bench.id, self.request())


class ApplyBench(Dialog):
    """Make a benchmark's thresholds the policy."""

    heading = "Apply to"
    act = "Apply"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        shown: BenchStatus,
        proposal: Proposal,
    ) -> None:
        super().__init__(client, present, author)
        self._shown = shown
        self._proposal = proposal

    def fields(self) -> list[tuple[str, Widget]]:
        """Whether it acts at once, or is watched first."""
        words = [Stance.SHADOW.value, Stance.ACTIVE.value]
        return [("as", self.choice(words, Stance.SHADOW.value, "stance"))]

    def request(self) -> PolicyRequest:
        """The request the fields describe."""
        return policy_request(
            self._proposal,
            self.scene.board.policy,
            benchmark=self._shown.id,
            stance=Stance(self.value("stance")),
            author=self.author,
        )

    def effect(self) -> tuple[str, ...]:
        """Old and new thresholds, and the gain."""
        return apply_effect(self._proposal, self.request(), self.scene)

    def sends(self) -> str:
        """The PUT, its body in short: the whole policy would fill the dialog."""
        version = self.request().if_version
        on = "" if version is None else f' {{"if_version": {version}, ...}}'
        return f"PUT /v1/engines/{self.engine_id}/policy{on}"

    async def send(self) -> None:
        """Set the policy."""
        await self.client.set_policy(self.engine_id, self.request())
