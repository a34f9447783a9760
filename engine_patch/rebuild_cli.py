"""``specdeck engine rebuild URL``: make requests whole that lived through a cold off.

Asks the engine itself, which does it in one pass of its loop.  Exit codes: 0 done (or nothing to
do); 2 wrong arguments; 3 nothing answers; 4 the engine refused, or its key is missing.
"""

from __future__ import annotations

import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

from pydantic import ValidationError

from engine_patch.contract_commands import RebuildAnswer, Refusal
from engine_patch.routes import REBUILD_PATH

DONE, USAGE, UNREACHABLE, REFUSED = 0, 2, 3, 4
KEY_VARIABLE = "SPECDECK_ENGINE_ADMIN_KEY"
TIMEOUT_S = 10.0


def run(argv: Sequence[str]) -> int:
    """The command, its words after ``rebuild``."""
    if len(argv) != 1 or not argv[0].startswith(("http://", "https://")):
        return _fail("give the engine's address, for example http://127.0.0.1:30000", USAGE)
    key = os.environ.get(KEY_VARIABLE, "")
    request = urllib.request.Request(
        argv[0].rstrip("/") + REBUILD_PATH,
        method="POST",
        headers={"authorization": f"Bearer {key}"} if key else {},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            answer = RebuildAnswer.model_validate_json(reply.read())
    except urllib.error.HTTPError as error:
        return _fail(_refusal(error), REFUSED)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A validation error is a ValueError: something else answers there.
        return _fail(f"no engine with the plugin answers at {argv[0]}: {error}", UNREACHABLE)
    for replica in answer.replicas:
        said = replica.message or f"{replica.rebuilt} requests are prefilled anew"
        sys.stdout.write(f"replica {replica.dp_rank}: {said}\n")
    return REFUSED if any(replica.message for replica in answer.replicas) else DONE


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code == 401:
        return f"the engine wants its admin key: set {KEY_VARIABLE}"
    try:
        refusal = Refusal.model_validate_json(error.read())
    except (ValidationError, OSError):
        return f"HTTP {error.code}"
    if error.code == 403:
        return f"{refusal.message} ({KEY_VARIABLE})"
    return refusal.message


def _fail(words: str, code: int) -> int:
    sys.stderr.write(f"specdeck engine rebuild: {words}\n")
    return code
