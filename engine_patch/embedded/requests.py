"""One request on its way through the embedded engine."""

from __future__ import annotations

from typing import Any


class Request:
    """A prompt of known length that will yield a known number of tokens.

    Times are virtual milliseconds, None until they happened.

    Attributes:
        prompt, output: tokens in, tokens wanted.
        ignore_eos: the caller said so; admission then counts on the full output.
        part: tokens that the caller wants together as they come, 0 if it waits for all; the
            engine lists the request in ``Engine.progressed`` whenever so many, or the first, are
            new (as SGLang 0.5.23 counts its ``stream_interval``).
        told: ``emitted`` when it was listed last.
        context: tokens whose KV is held or, after a retraction, must be computed again.
        prefilled: tokens of ``context`` that are computed.
        emitted: output tokens so far.
        verifies, accepted, proposed: verify steps, and drafts accepted and proposed in them.
        cold: it decoded while the drafter was skipped, so its drafter KV has holes.
        failure: why it ended without its full output, "" if it did not.
        tag: belongs to the caller.
    """

    __slots__ = (
        "accepted",
        "arrival_ms",
        "cold",
        "emitted",
        "failure",
        "finish_ms",
        "first_token_ms",
        "forward_ms",
        "ignore_eos",
        "output",
        "part",
        "prefilled",
        "prompt",
        "proposed",
        "retractions",
        "tag",
        "told",
        "verifies",
    )

    def __init__(
        self,
        prompt: int,
        output: int,
        *,
        arrival_ms: float,
        ignore_eos: bool = True,
        part: int = 0,
        tag: Any = None,
    ) -> None:
        self.prompt = prompt
        self.output = output
        self.arrival_ms = arrival_ms
        self.ignore_eos = ignore_eos
        self.part = part
        self.tag = tag
        self.told = 0
        self.prefilled = 0
        self.emitted = 0
        self.verifies = 0
        self.accepted = 0
        self.proposed = 0
        self.retractions = 0
        self.cold = False
        self.failure = ""
        self.forward_ms: float | None = None
        self.first_token_ms: float | None = None
        self.finish_ms: float | None = None

    @property
    def context(self) -> int:
        """Prompt and output tokens so far."""
        return self.prompt + self.emitted

    @property
    def done(self) -> bool:
        """Whether it left the engine, for whatever reason."""
        return self.finish_ms is not None

    def remaining(self, most: int) -> int:
        """Output tokens still to come, at most ``most``."""
        return min(self.output - self.emitted, most)
