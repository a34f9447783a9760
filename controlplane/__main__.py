"""``python -m controlplane serve|status|override``, for where the command is not installed."""

from __future__ import annotations

import sys

from controlplane.cli import run_override, run_serve, run_status
from controlplane.terminal import USAGE

COMMANDS = {"serve": run_serve, "status": run_status, "override": run_override}


def main(argv: list[str]) -> int:
    """Run one command."""
    command = COMMANDS.get(argv[0]) if argv else None
    if command is None:
        sys.stderr.write(f"usage: python -m controlplane {'|'.join(COMMANDS)} ...\n")
        return USAGE
    return command(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
