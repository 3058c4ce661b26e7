"""The two runs that a comparison opens with if the viewer has not chosen any."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sawtooth.analysis.compare.changed.products import OF_ONE_MODEL, common_share
from sawtooth.analysis.compare.prediction_record import FOLLOWS, run_before
from sawtooth.app.jobs.bundled_examples import first_pair
from sawtooth.ingest.loop.command import program_of
from sawtooth.ingest.manifest import Manifest

# Runs that are examined. Opening each takes milliseconds, and the navigation of every screen needs the pair.
MAX_EXAMINED_RUNS = 12
Products = Callable[[Manifest], frozenset[str]]  # Returns the shapes of a run's matrix products; empty if not recorded.


def likely_pair(
    manifests: Sequence[Manifest], came_from: str | None, products: Products = lambda manifest: frozenset()
) -> tuple[Manifest, Manifest] | None:
    """Return the older and the newer run to compare; None if no two runs do the same work.

    ``manifests`` are sorted, newest first. If ``came_from`` (the run that the viewer looked at) is given, the pair contains
    this run. Its partner is the newest earlier run of the same work, else the first later one. Without ``came_from``, the
    result is the bundled pair, else the newest run that has an earlier run of the same work, and that run.
    """
    if len(manifests) < 2:
        return None
    shapes = _read_once(products)
    at = next((i for i, manifest in enumerate(manifests) if manifest.id == came_from), None)
    example = first_pair(manifests)
    if example is not None and (at is None or manifests[at] in example):
        return example
    if at is None:
        near = manifests[:MAX_EXAMINED_RUNS]
        pairs = ((older, newer) for i, newer in enumerate(near) for older in near[i + 1 :])
        return next(((a, b) for a, b in pairs if same_work(a, b, shapes)), None)
    current = manifests[at]
    before = next((run for run in manifests[at + 1 : at + 1 + MAX_EXAMINED_RUNS] if same_work(run, current, shapes)), None)
    if before is not None:
        return before, current
    after = next(
        (run for run in reversed(manifests[max(at - MAX_EXAMINED_RUNS, 0) : at]) if same_work(current, run, shapes)), None
    )
    return (current, after) if after is not None else None


def _read_once(products: Products) -> Products:
    products_by_run: dict[str, frozenset[str]] = {}

    def of_run(manifest: Manifest) -> frozenset[str]:
        if manifest.id not in products_by_run:
            products_by_run[manifest.id] = products(manifest)
        return products_by_run[manifest.id]

    return of_run


def same_work(a: Manifest, b: Manifest, products: Products) -> bool:
    """Return whether two runs probably belong to the same program.

    They do if one run is tagged as following the other, or if their matrix products have mostly the same shapes. If products are not recorded,
    a common tag or a common first word of the names is enough, unless `sawtooth run` started two different programs.
    """
    if run_before(a, [b]) is not None or run_before(b, [a]) is not None:
        return True
    shapes = products(a), products(b)
    share = common_share(*shapes)
    if share is not None:
        return share >= OF_ONE_MODEL
    if shapes[0] and shapes[0] == shapes[1]:
        return True
    programs = program_of(a.recorded_command), program_of(b.recorded_command)
    if all(programs) and programs[0] != programs[1]:
        return False
    tags = {tag for tag in a.tags if not tag.startswith(FOLLOWS)} & set(b.tags)
    return bool(tags) or _stem(a.name) == _stem(b.name) != ""


def _stem(name: str) -> str:
    """Return the first word of a name, such as "resnet" for "resnet-50-fixed"."""
    return re.split(r"[^a-z]+", name.lower().strip(), maxsplit=1)[0]
