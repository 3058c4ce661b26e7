"""Findings about a kernel, an operator or a module.

A finding is about it if its change removes, shortens or moves one of its launches, or if its evidence shows one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.store.rank_view import RankView

_LAUNCHES = "SELECT gpu_op_id, start_ns, start_ns + dur_ns FROM named_gpu_ops WHERE device = $device AND name = $name"

_OF_OPERATOR = (
    "SELECT g.gpu_op_id, g.start_ns, g.start_ns + g.dur_ns FROM named_gpu_ops g JOIN named_cpu_ops o USING (cpu_op_id) "
    "WHERE g.device = $device AND o.name = $name"
)

_OF_MODULES = (
    "SELECT gpu_op_id, start_ns, start_ns + dur_ns FROM step_gpu_ops "
    "WHERE device = $device AND summed AND list_contains($modules::INTEGER[], module)"
)


def about_kernel(rank: RankView, kernel: str, findings: Sequence[Finding]) -> tuple[int, ...]:
    """Return the positions of the ``findings`` about the kernel with this name.

    The findings must be from this rank, because other ranks number their GPU operations differently.
    """
    return _about(rank.rows(_LAUNCHES, name=kernel), findings)


def about_operator(rank: RankView, operator: str, findings: Sequence[Finding]) -> tuple[int, ...]:
    """Return the positions of the ``findings`` about the operator's own launches; see ``about_kernel``."""
    return _about(rank.rows(_OF_OPERATOR, name=operator), findings)


def about_modules(rank: RankView, modules: Sequence[int], findings: Sequence[Finding]) -> tuple[int, ...]:
    """Return the positions of the ``findings`` about the modules' own launches; see ``about_kernel``.

    ``modules`` are ids of ``analysis.tables.modules``.
    """
    return _about(rank.rows(_OF_MODULES, modules=list(modules)), findings)


def _about(launches: Sequence[tuple[Any, ...]], findings: Sequence[Finding]) -> tuple[int, ...]:
    ops, spans = {int(op) for op, _, _ in launches}, {(int(start), int(end)) for _, start, end in launches}
    return tuple(place for place, finding in enumerate(findings) if _is_about(finding, ops, spans))


def _is_about(finding: Finding, ops: set[int], spans: set[tuple[int, int]]) -> bool:
    changed = any(not ops.isdisjoint(getattr(edit, "ops", ())) for edit in finding.edits)
    proved = any((row.get("start_ns"), row.get("end_ns")) in spans for row in finding.evidence)
    return changed or proved or not spans.isdisjoint(finding.places)
