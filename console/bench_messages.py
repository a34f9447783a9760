"""Messages of the benchmark feed; the screen's handlers are the only ones that change its board."""

from __future__ import annotations

from textual.message import Message

from controlplane.bench_findings import Analysis
from controlplane.bench_propose import Proposal
from controlplane.benchrun_messages import BenchStatus


class BenchesListed(Message):
    """Every benchmark of an engine, newest first."""

    def __init__(self, engine_id: str, statuses: tuple[BenchStatus, ...]) -> None:
        super().__init__()
        self.engine_id = engine_id
        self.statuses = statuses


class BenchMoved(Message):
    """A running benchmark went on, or ended."""

    def __init__(self, engine_id: str, status: BenchStatus) -> None:
        super().__init__()
        self.engine_id = engine_id
        self.status = status


class BenchJudged(Message):
    """What follows from a benchmark; a proposal is None where nothing can be proposed."""

    def __init__(
        self, engine_id: str, benchmark: str, analysis: Analysis, proposal: Proposal | None
    ) -> None:
        super().__init__()
        self.engine_id = engine_id
        self.benchmark = benchmark
        self.analysis = analysis
        self.proposal = proposal


class BenchTrouble(Message):
    """The benchmarks could not be read."""

    def __init__(self, engine_id: str, text: str) -> None:
        super().__init__()
        self.engine_id = engine_id
        self.text = text
