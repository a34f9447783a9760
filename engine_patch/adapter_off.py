"""Tier off as ordinary decode, and what the drafter does meanwhile.

SGLang's own step 0 still verifies one token per request: 0.94 to 0.98 of plain decode on FA3, a
quarter of it on triton (measured, see docs/gpu-results.md).  Here its graphs capture ordinary
decode; ``adapter_decode`` is the round that replays them, ``adapter_flavour`` what the drafter does
meanwhile.  After keep and cold the controller lets one off round run the whole draft-extend (the
bridge) before the first draft.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from engine_patch import adapter_room, adapter_sglang, adapter_tiers
from engine_patch.adapter_owed import ROUNDS, Owed
from engine_patch.contract_words import OffFlavour, OffKind

log = logging.getLogger("specdeck")

VARIABLE = "SPECDECK_OFF"
PLAIN_BACKENDS = ("triton", "fa3", "flashinfer", "intel_amx")
"""Attention backends on which off runs as ordinary decode if ``SPECDECK_OFF`` is not set."""
TOLERANCE = 0.02
"""Largest difference of a kept key or value, as a share of the largest one: a few bf16 steps."""


def wanted() -> str:
    """``plain``, ``upstream`` or "" (by attention backend).

    Raises:
        ValueError: the variable holds something else.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "plain", "upstream"):
        raise ValueError(f"{VARIABLE} is 'plain' or 'upstream', not {value!r}")
    return value


class Off:
    """How this rank runs tier off.

    Args:
        worker: SGLang's ``EAGLEWorkerV2``.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.reason = _not_plain(worker)
        """Why off does not run as ordinary decode, "" if it does."""
        self.kind = OffKind.ONE_TOKEN_VERIFY if self.reason else OffKind.PLAIN_PATH
        self.keep_reason = ""
        """Why the drafter's keys and values cannot be kept, "" if they can or it is not known."""
        args = worker.target_worker.model_runner.server_args
        self.owed = Owed(1 if copied_at_once(args) else ROUNDS)
        """What off rounds have not stored yet."""
        self._attention: Any = None
        self._probed = False

    @property
    def flavours(self) -> tuple[OffFlavour, ...]:
        """Flavours that can be asked for, the default first."""
        if adapter_tiers.cold_by_environment():
            return (OffFlavour.COLD,)
        if self.attention() is None:
            return (OffFlavour.WARM, OffFlavour.COLD)
        return (OffFlavour.KEEP, OffFlavour.WARM, OffFlavour.COLD)

    def flavour(self, asked: OffFlavour | None) -> OffFlavour:
        """The flavour of an off round; warm where keep was asked for and cannot be had."""
        flavour = asked or self.flavours[0]
        if adapter_tiers.cold_by_environment():
            return OffFlavour.COLD
        if flavour is OffFlavour.KEEP and self.attention() is None:
            return OffFlavour.WARM
        return flavour

    def attention(self) -> Any:
        """The drafter's only attention layer; None where keep cannot be had."""
        if self.keep_reason:
            return None
        if self._attention is None and self._worker.speculative_algorithm.is_standalone():
            self.keep_reason = (
                "a standalone drafter reads no hidden states: it drafts from its own KV alone, "
                "which only its whole draft-extend writes"
            )
        elif self._attention is None:
            model = self._worker._draft_worker.draft_runner.model
            layers = [m for m in model.modules() if type(m).__name__ == "RadixAttention"]
            if len(layers) == 1 and hasattr(model, "model"):
                self._attention = layers[0]
            else:
                self.keep_reason = f"the drafter has {len(layers)} attention layers, keep needs one"
        return self._attention

    # Build.

    @contextlib.contextmanager
    def plain_runner(self) -> Iterator[None]:
        """While the state of off is built: capture ordinary decode graphs."""
        if self.kind is not OffKind.PLAIN_PATH:
            yield
            return
        import sglang.srt.speculative.eagle_worker_v2 as module

        ordinary = module.DecodeCudaGraphRunner
        module.DecodeCudaGraphRunner = decode_runner(ordinary)
        try:
            yield
        finally:
            module.DecodeCudaGraphRunner = ordinary

    # Keep.

    def needs_probe(self) -> bool:
        """Whether the next off round must compare what keep writes with the whole draft-extend."""
        return not self._probed and self.attention() is not None

    def most(self, size: float) -> float:
        """Largest difference of a kept key or value that counts as none."""
        return TOLERANCE * max(size, 1e-6)

    def tried(self, problem: str) -> None:
        """Take what start-up found; all ranks must come to the same answer."""
        if adapter_sglang.least_of_all_ranks(int(not problem)):
            return
        self.keep_reason = problem or "keep failed at start-up on another rank"
        log.warning("specdeck: off runs warm: %s", self.keep_reason)

    def probed(self, gap: float, size: float, problem: str) -> None:
        """Take the comparison; all ranks must come to the same answer."""
        self._probed = True
        fits = not problem and gap <= self.most(size)
        if adapter_sglang.least_of_all_ranks(int(fits)):
            log.info("specdeck: off keeps the drafter's KV (largest gap %.2e of %.2e)", gap, size)
            return
        self.keep_reason = problem or (
            "what keep writes differs from the whole draft-extend"
            if not fits
            else "keep failed its check on another rank"
        )
        log.warning("specdeck: off runs warm: %s (gap %.2e of %.2e)", self.keep_reason, gap, size)


def _not_plain(worker: Any) -> str:
    runner = worker.target_worker.model_runner
    args, config = runner.server_args, runner.model_config
    asked = wanted()
    if asked == "upstream":
        return f"{VARIABLE}=upstream"
    unsafe = (
        (worker.speculative_algorithm.is_standalone(), "a standalone drafter has no hidden states"),
        (_recurrent(config), "a recurrent model's state would be committed twice"),
        (bool(adapter_sglang.setting(args, "enable_lora")), "not tried with LoRA"),
        (bool(adapter_sglang.setting(args, "lora_paths")), "not tried with LoRA"),
        (bool(adapter_sglang.setting(args, "enable_hisparse")), "not tried with hisparse"),
        ((adapter_sglang.setting(args, "pp_size") or 1) > 1, "not tried with pipeline parallelism"),
        (bool(getattr(config, "model_is_mrope", False)), "not tried with M-RoPE positions"),
        (
            any(
                "DeepseekV4" in name
                for name in getattr(config.hf_config, "architectures", ()) or ()
            ),
            "not tried with DeepSeek-V4",
        ),
    )
    for bad, reason in unsafe:
        if bad:
            return reason
    backend = adapter_room.decode_backend(args)
    if asked == "plain" or backend in PLAIN_BACKENDS:
        return ""
    return f"not tried with attention backend {backend}; SPECDECK_OFF=plain forces it"


def copied_at_once(args: Any) -> bool:
    """Whether the drafter's keys and values may be copied elsewhere as soon as a request ends."""
    names = ("hierarchical_cache", "lmcache", "flexkv", "unified_cache_external_linker")
    return any(adapter_sglang.setting(args, f"enable_{name}") for name in names)


def _recurrent(config: Any) -> bool:
    from sglang.srt.configs.hybrid_arch import mambaish_config

    return mambaish_config(config) is not None


def decode_runner(base: Any) -> Any:
    """SGLang's decode graph runner, capturing ordinary decode on a speculative target."""
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    class PlainDecodeRunner(base):  # type: ignore[misc]
        def __init__(self, model_runner: Any, **kwargs: Any) -> None:
            # Mode, width and buffers all derive from the algorithm, and capture happens in here.
            kept, model_runner.spec_algorithm = (
                model_runner.spec_algorithm,
                SpeculativeAlgorithm.NONE,
            )
            try:
                super().__init__(model_runner, **kwargs)
            finally:
                model_runner.spec_algorithm = kept

        def get_spec_info(self, num_tokens: int) -> None:
            del num_tokens

        def capture_prepare(self, *args: Any, **kwargs: Any) -> Any:
            # Draft-extend (warm off, bridge) reads the target's hidden states.
            self.capture_hidden_mode = CaptureHiddenMode.FULL
            return super().capture_prepare(*args, **kwargs)

    return PlainDecodeRunner
