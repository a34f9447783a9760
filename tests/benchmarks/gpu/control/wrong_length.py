"""A fault on purpose: off rounds do not see their own token.  The equality check must notice."""


def register() -> None:
    """Shorten the lengths of every off round by one."""
    from typing import Any

    from engine_patch import adapter_decode

    right = adapter_decode.forward_batch

    def short(tokens: Any, pool: Any, batch: Any, runner: Any) -> Any:
        forward, *rest = right(tokens, pool, batch, runner)
        forward.seq_lens = forward.seq_lens - 1
        return forward, *rest

    adapter_decode.forward_batch = short
