"""Which two runs a comparison opens with, where nobody has chosen any."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.app.jobs.bundled import first_pair
from sawtooth.ingest.schema import Manifest


def likely_pair(manifests: Sequence[Manifest], came_from: str | None) -> tuple[Manifest, Manifest] | None:
    """Return the older and the newer run to compare, None for fewer than two; ``manifests`` are newest first.

    ``came_from`` is the run the viewer looked at: it is one of the pair, beside the run before it in time. Without it, it is the bundled
    pair or the two newest runs.
    """
    if len(manifests) < 2:
        return None
    at = next((i for i, manifest in enumerate(manifests) if manifest.id == came_from), None)
    example = first_pair(manifests)
    if example is not None and (at is None or manifests[at] in example):
        return example
    newer = min(at or 0, len(manifests) - 2)
    return manifests[newer + 1], manifests[newer]
