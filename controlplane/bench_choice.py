"""A part of a results file: one backend, tier or label, with what it is compared with.  Pure."""

from __future__ import annotations

from controlplane.bench_records import PLAIN, BenchFile, BenchPoint
from engine_patch.tier import OFF


def chosen(
    file: BenchFile,
    *,
    backend: str | None = None,
    tier: str | None = None,
    label: str | None = None,
) -> BenchFile:
    """The runs of a file that fit; ``plain`` and ``off`` stay for comparison.

    Args:
        backend: attention backend.
        tier: a tier's name.
        label: as in the file.
    """

    def fits(run: BenchPoint) -> bool:
        is_base = run.tier in (PLAIN, OFF)
        return (
            (backend is None or run.backend == backend)
            and (tier is None or run.tier == tier or is_base)
            and (label is None or run.label == label or is_base)
        )

    return file.model_copy(update={"points": tuple(run for run in file.points if fits(run))})
