"""Who may command an engine: the admin key where there is one, else this machine alone."""

from __future__ import annotations

from typing import cast

import pytest

from engine_patch.contract_words import RefusalCode
from engine_patch.desk import Backend, Desk
from engine_patch.front import Front


def _desk(admin_key: str | None) -> Desk:
    front = Front.at_launch("b" * 32, ("off", "s3k1d4"), "s3k1d4")
    # The rule is asked before anything of the engine is.
    return Desk(front, cast("Backend", None), lambda: 0.0, admin_key=admin_key)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.1", None]
)
def test_without_an_admin_key_this_machine_may_command(host: str | None) -> None:
    assert _desk(None).forbids(host, None) is None


@pytest.mark.parametrize(
    "host",
    ["10.0.0.1", "192.168.1.9", "128.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.1", "localhost", ""],
)
def test_without_an_admin_key_no_other_machine_may_and_the_flag_is_named(host: str) -> None:
    refusal = _desk(None).forbids(host, "Bearer anything")
    assert refusal is not None
    assert refusal.code is RefusalCode.FORBIDDEN
    assert "--admin-api-key" in refusal.message


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1"])
def test_with_an_admin_key_the_key_decides_wherever_the_caller_is(host: str) -> None:
    desk = _desk("secret")
    for right in ("Bearer secret", "bearer secret"):
        assert desk.forbids(host, right) is None
    for given in (None, "", "secret", "Bearer secre", "Bearer ", "Bearer secret2", "Basic secret"):
        refusal = desk.forbids(host, given)
        assert refusal is not None
        assert "secret" not in refusal.message
