"""A fault on purpose: off rounds do not see their own token.  The equality check must notice."""


def register() -> None:
    """Shorten the lengths of every off round by one."""
    from typing import Any

    from engine_patch import adapter_off

    right = adapter_off.decode_batch

    def short(verify_input: Any, pool: Any, batch: Any, runner: Any) -> Any:
        forward, replays = right(verify_input, pool, batch, runner)
        forward.seq_lens = forward.seq_lens - 1
        return forward, replays

    adapter_off.decode_batch = short
