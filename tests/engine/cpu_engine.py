"""Start and stop a real SGLang server with EAGLE-3 on the CPU.

The server is SGLang's own, unmodified: HTTP server, scheduler and speculative worker.  Only the
compiled CPU kernels are replaced by a slow reference (``stubs``), and the model is tiny and random.
It covers switching, bookkeeping, greedy equality and several ranks (``two_ranks``); it says nothing
about speed, CUDA graphs, or the overlap loop (SGLang turns it off for speculation on a CPU).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from engine_patch.quiet_port import quiet_port

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PYTHON_VARIABLE = "SPECDECK_ENGINE_PYTHON"

PROMPTS = (
    "the quick brown fox",
    "a tiny model answers",
    "speculative decoding drafts tokens and verifies them",
    "0123456789 + - * / =",
)

_BASE = (
    "--device", "cpu",
    # With float32 a greedy tie does not depend on the shape of the batch.
    "--dtype", "float32",
    # The pair, not --attention-backend: that would be replaced by torch_native on a machine without
    # AMX, and torch_native has no EAGLE draft backend.
    "--prefill-attention-backend", "intel_amx",
    "--decode-attention-backend", "intel_amx",
    "--skip-server-warmup",
    # Adaptive mode would otherwise ask for a CUDA graph runner even here.
    "--disable-cuda-graph",
)  # fmt: skip


class EngineError(Exception):
    """The server did not start or is gone; the message ends with the tail of its log."""


def engine_python() -> Path:
    """The interpreter of the SGLang environment.

    Raises:
        EngineError: there is none; the message says how to make it.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    python = Path(named) if named else REPOSITORY / ".engine" / "venv" / "bin" / "python"
    if not python.exists():
        raise EngineError(
            f"no SGLang environment at {python}: run python tests/engine/install.py, "
            f"or set {PYTHON_VARIABLE} to the python of one"
        )
    return python


def make_models(work: Path) -> Path:
    """Write the tiny models once; returns their folder."""
    models = work / "model"
    if not (models / "eagle3").exists():
        subprocess.run(
            [engine_python(), HERE / "tiny_model.py", models],
            check=True,
            env=os.environ | {"PYTHONPATH": str(HERE / "stubs")},
            capture_output=True,
        )
    return models


@dataclass
class CpuEngine:
    """One server process group.

    Args:
        work: folder for models and logs.
        name: name of the log file.
        algorithm: "EAGLE3", "EAGLE", or None for a plain server.
        num_steps: steps of the launch chain.
        adaptive: whether ``--speculative-adaptive`` is given.
        plugin: whether the specdeck plugin may load.
        tiers: value of ``SPECDECK_TIERS``, None to leave it unset.
        polls: whether an idle scheduler polls, as SGLang does unless told otherwise; it takes a
            whole core then, from whatever runs beside it.
        args: more server arguments; later ones win.
        env: more environment variables.
        paths: folders put in front of the module search path.
        api_key: sent with requests for answers, for a server that wants one.
    """

    work: Path
    name: str = "engine"
    algorithm: str | None = "EAGLE3"
    num_steps: int = 3
    adaptive: bool = True
    plugin: bool = True
    tiers: str | None = None
    polls: bool = False
    max_running: int | None = 16
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    paths: Iterable[Path] = ()
    api_key: str | None = None
    port: int = field(default_factory=quiet_port)
    process: subprocess.Popen[bytes] | None = None
    start_s: float = 0.0

    @property
    def url(self) -> str:
        """Base address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        """Where standard output and error of all its processes go."""
        return self.work / f"{self.name}.log"

    @property
    def log(self) -> str:
        """Everything logged so far."""
        return self.log_file.read_text(errors="replace")

    def command(self) -> list[str]:
        """The command line, as a user would type it but for the CPU flags."""
        models = make_models(self.work)
        words = [
            str(engine_python()), "-W", "ignore", "-m", "sglang.launch_server",
            "--model-path", str(models / "target"),
            "--host", "127.0.0.1", "--port", str(self.port),
            *_BASE, "--max-total-tokens", "16384",
        ]  # fmt: skip
        if not self.polls:
            words.append("--sleep-on-idle")
        if self.max_running is not None:
            words += ["--max-running-requests", str(self.max_running)]
        if self.algorithm is not None:
            words += [
                "--speculative-algorithm", self.algorithm,
                "--speculative-draft-model-path", str(models / self.algorithm.lower()),
                "--speculative-num-steps", str(self.num_steps),
                "--speculative-eagle-topk", "1",
                "--speculative-num-draft-tokens", str(self.num_steps + 1),
            ]  # fmt: skip
            if self.adaptive:
                words.append("--speculative-adaptive")
        return [*words, *self.args]

    def environment(self) -> dict[str, str]:
        """The server's environment variables."""
        env = dict(os.environ)
        env.pop("SPECDECK_TIERS", None)
        env |= {
            "SGLANG_USE_CPU_ENGINE": "1",
            "TORCHDYNAMO_DISABLE": "1",  # else the first request compiles C++ for 15 s
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            # A whitelist that names nobody is SGLang's own way to load no plugin.
            "SGLANG_PLUGINS": "specdeck" if self.plugin else "none",
            "PYTHONPATH": os.pathsep.join(map(str, (*self.paths, HERE / "stubs"))),
        }
        if self.tiers is not None:
            env["SPECDECK_TIERS"] = self.tiers
        return env | dict(self.env)

    def start(self, timeout_s: float = 240.0) -> Self:
        """Start the server and wait until it answers.

        Raises:
            EngineError: it ended, or did not answer in time.
        """
        self.work.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        command = self.command()
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        while True:
            if self.process.poll() is not None or time.monotonic() - begin > timeout_s:
                self.stop()
                raise EngineError(f"{self.name} did not start:\n{self.log[-4000:]}")
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        self.start_s = time.monotonic() - begin
        return self

    def stop(self) -> None:
        """Kill the whole process group; a graceful stop takes SGLang 5 s and saves nothing."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def generate(
        self,
        prompts: Sequence[str] = PROMPTS,
        *,
        new_tokens: int = 64,
        concurrency: int = 1,
        timeout_s: float = 120.0,
    ) -> list[dict[str, Any]]:
        """Greedy answers to ``prompts``, each its own request, ``concurrency`` at a time."""
        headers = {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
        with (
            httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s) as client,
            ThreadPoolExecutor(concurrency) as pool,
        ):

            def one(prompt: str) -> dict[str, Any]:
                reply = client.post("/generate", json=request_body(prompt, new_tokens))
                reply.raise_for_status()
                answer: dict[str, Any] = reply.json()
                return answer

            return list(pool.map(one, prompts))


def two_ranks() -> dict[str, str]:
    """Environment that lets two ranks run on a machine with one NUMA node."""
    return {"SGLANG_CPU_OMP_THREADS_BIND": f"0|{min(1, (os.cpu_count() or 1) - 1)}"}


def request_body(prompt: str, new_tokens: int) -> dict[str, Any]:
    """A greedy request of exactly ``new_tokens`` tokens."""
    return {
        "text": prompt,
        "sampling_params": {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True},
    }


def tokens(answers: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """The token ids of each answer."""
    return [list(answer["output_ids"]) for answer in answers]
