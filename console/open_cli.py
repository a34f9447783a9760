"""The command ``specdeck open URL``: the console at the moment that a link names."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from console import cli
from console.links import LinkError, read


def run(argv: Sequence[str]) -> int:
    """Open a link; takes the options of ``specdeck console``; returns the exit code."""
    try:
        words = cli.parser("specdeck open", link=True).parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else cli.USAGE
    try:
        moment = read(words.url)
    except LinkError as error:
        sys.stderr.write(f"specdeck open: {error}\n")
        return cli.USAGE
    words.url, words.url_option = moment.url, None
    words.engine, words.place, words.moment = moment.engine_id, moment.place, moment.seq
    return cli.start(words)
