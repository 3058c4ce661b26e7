"""GPU time of one rank by kernel, operator, module, phase or category.

Every grouping sums to the same time, which is the time of the ledger without idle time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.lost.ledger import own_times
from sawtooth.analysis.findings.model import operations_of
from sawtooth.analysis.findings.recorded.phases import phases_of
from sawtooth.analysis.intervals import Intervals
from sawtooth.analysis.knowledge.owners import OWNER_KEYS, TENSOR_CORES_USED
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables.efficiency import roofline_table
from sawtooth.analysis.tables.kernels import shapes_text
from sawtooth.analysis.tables.modules import ORDINAL, OUTSIDE, modules

Grouping = Literal["kernel", "operator", "shape", "module", "class", "phase", "category"]
I64 = NDArray[np.int64]

NO_OPERATOR = "no operator known"
# Operations with equal values in these columns share a row of ``GpuWork.rows``.
_KEYS = ["kernel", "category", "tensor_cores", "operator", "signature", "flop_operator", "flop_signature", "module", "phase", "owner"]  # fmt: skip
_SUMS = ["own_ns", "tensor_core_ns", "beside_ns", "launches", "bytes", "roof_ns", "roofed_ns", "flops"]
MIN_ROOF_SHARE = 0.9  # A row's least time is shown if it is known for at least this share of the row's time.
_SQL = queries_of(__file__)


@dataclass(frozen=True)
class GpuWork:
    """Sums of the GPU operations of the steady window.

    ``rows`` has the columns kernel, category, tensor_cores, operator, shapes, module (a path), class, phase (None if no phase is
    marked), owner, and sums over the window: own_ns (see ``own_times``), beside_ns (durations in which other work ran too),
    tensor_core_ns (part of own_ns), launches, bytes (copied or set), roof_ns (the least time of the work at the GPU's peaks),
    roofed_ns (the durations of work with a known roof_ns) and flops. A sum divided by ``step_divisor`` is per step. ``changes`` has
    one array per finding: the positions of the rows that the finding is about.
    """

    rows: pd.DataFrame
    step_divisor: int
    has_modules: bool
    has_phases: bool
    has_operators: bool
    changes: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    groupings: dict[Grouping, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)  # Results of ``grouped``.

    def knows(self, by: Grouping) -> bool:
        """Return whether the recording has the data for this grouping."""
        if by in ("operator", "shape"):
            return self.has_operators
        if by in ("module", "class"):
            return self.has_modules
        return self.has_phases if by == "phase" else True


def gpu_work(rank: RankView, findings: Sequence[Finding] = ()) -> GpuWork:
    """Return the GPU work of a rank.

    A finding is about an operation if the finding's change removes, shortens or moves it, or if the finding's evidence shows
    it. ``findings`` must be about this rank.
    """
    columns = pd.DataFrame(rank.recording.objects(_SQL["operations"], {"device": rank.device, "owners": list(OWNER_KEYS)}))
    starts, ends = np.array(rank.rows(_SQL["window"]), np.int64).reshape(-1, 2).T
    window = Intervals(starts, ends)
    start, end = (columns[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    phases = phases_of(rank, columns["gpu_op_id"].to_numpy(np.int64), columns["category"])
    inside = np.searchsorted(starts, start, side="right") > np.searchsorted(ends, start, side="right")
    own_ns = own_times(start, end, columns["owner"].to_numpy(np.int8), window)
    columns = columns.assign(
        phase=phases if phases is not None else "",
        own_ns=own_ns,
        beside_ns=_in_window(start, end, window) - own_ns,
        launches=inside.astype(np.int64),
    )
    group = columns.groupby(_KEYS, sort=False, observed=True)
    rows = group[["own_ns", "beside_ns", "launches", "bytes"]].sum().reset_index()
    row_numbers = group.ngroup().to_numpy()
    changes = {
        place: np.unique(row_numbers[positions])
        for place, finding in enumerate(findings)
        if len(positions := _positions_of(finding, columns["gpu_op_id"].to_numpy(np.int64), start, end))
    }
    module_tree = modules(rank)
    named = _with_names(rows, rank, module_tree)
    return GpuWork(
        named,
        rank.step_divisor,
        len(module_tree) > 1,
        phases is not None,
        bool((named["operator"] != NO_OPERATOR).any()),
        changes,
    )


def _in_window(start: I64, end: I64, window: Intervals) -> I64:
    """Return the nanoseconds of each operation inside the window."""
    total = np.zeros(len(start), np.int64)
    for low, high in zip(window.starts.tolist(), window.ends.tolist(), strict=True):  # One interval per profiling cycle.
        total += np.maximum(np.minimum(end, high) - np.maximum(start, low), 0)
    return total


def _positions_of(finding: Finding, ids: I64, start: I64, end: I64) -> NDArray[np.intp]:
    """Return the positions of the operations that a finding changes or shows."""
    changed = np.array(sorted(operations_of(finding)), np.int64)
    shown_spans = {(row.get("start_ns"), row.get("end_ns")) for row in finding.evidence} | set(finding.spans)
    spans = np.array([span for span in shown_spans if None not in span], np.int64).reshape(-1, 2)
    is_shown = np.isin(start, spans[:, 0])
    is_shown[is_shown] = [span in shown_spans for span in zip(start[is_shown].tolist(), end[is_shown].tolist(), strict=True)]
    return np.flatnonzero(is_shown | np.isin(ids, changed))


def _with_names(rows: pd.DataFrame, rank: RankView, tree: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with names instead of ids, and with the least time of each row."""
    texts = dict(rank.recording.rows("SELECT name_id, name FROM names"))
    signatures = [int(i) for i in pd.unique(rows["signature"]) if i >= 0]
    shapes = {int(i): shapes_text(dims) for i, dims in rank.recording.rows(_SQL["signatures"], {"ids": signatures})}
    paths = {int(m): str(p) for m, p in zip(tree["module"], tree["path"], strict=True) if pd.notna(m)}
    roof = roofline_table(rank)
    rates = (roof["flops"] / roof["time_ns"]).astype(float)
    roof_of_operator = {
        (name, -1 if pd.isna(signature) else int(signature)): (share, rate)
        for name, signature, share, rate in zip(roof["name"], roof["signature_id"], roof["attained_share"], rates, strict=True)
    }
    worked_ns = (rows["own_ns"] + rows["beside_ns"]).to_numpy(float)
    flop_operators = zip(map(texts.get, rows["flop_operator"]), rows["flop_signature"], strict=True)
    row_roofs = [roof_of_operator.get((name, int(signature)), (np.nan, 0.0)) for name, signature in flop_operators]
    share, rate = np.array(row_roofs, float).reshape(-1, 2).T
    path = pd.Series([paths.get(module, OUTSIDE) for module in rows["module"]], rows.index, dtype=object)
    return rows.assign(
        kernel=[texts[name] for name in rows["kernel"]],
        operator=[texts.get(name, NO_OPERATOR) for name in rows["operator"]],
        shapes=[shapes.get(signature, "") for signature in rows["signature"]],
        module=path,
        **{"class": path.str.rsplit(" / ", n=1).str[-1].str.replace(ORDINAL, "", regex=True)},
        owner=[OWNER_KEYS[code] for code in rows["owner"]],
        tensor_core_ns=rows["own_ns"].where(rows["tensor_cores"].isin(TENSOR_CORES_USED), 0),
        roof_ns=np.where(np.isfinite(share), worked_ns * np.minimum(share, 1.0), 0.0),
        roofed_ns=np.where(np.isfinite(share), worked_ns, 0.0),
        flops=worked_ns * rate,
    )


def key_columns(by: Grouping) -> list[str]:
    """Return the columns of ``GpuWork.rows`` whose values identify a row of the grouping."""
    return ["operator", "shapes"] if by == "shape" else [by]


def grouped(work: GpuWork, by: Grouping) -> pd.DataFrame:
    """Return all work by ``by``, as ``grouped_rows`` does. Callers must not change the shared table."""
    if by not in work.groupings:
        work.groupings[by] = grouped_rows(work, by, work.rows)
    return work.groupings[by]


def grouped_rows(work: GpuWork, by: Grouping, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return ``chosen``, a selection of ``work.rows``, grouped by ``by``, longest first.

    Columns: the key columns, name (the first key), ms and beside_ms, launches_per_step, share (of all own time), tensor_core_share,
    category and owner (with most of the group's time), mean_us (per launch), gb_per_s (of copies), roof_share (least time ÷ time,
    missing if unknown), above_ms (time above the least time), tflops, and changes (positions of findings). Values are per step, or
    sums over the window without counted steps.
    """
    keys = key_columns(by)
    total = chosen[_SUMS].groupby([chosen[key] for key in keys], sort=False, dropna=False).sum().reset_index()
    main_rows = chosen.sort_values("own_ns", ascending=False, kind="stable").drop_duplicates(keys)
    total = total.merge(main_rows[list(dict.fromkeys([*keys, "category", "owner"]))], on=keys)
    total_ns, worked_ns = float(work.rows["own_ns"].sum()), (total["own_ns"] + total["beside_ns"]).astype(float)
    has_roof = (total["roofed_ns"] >= MIN_ROOF_SHARE * worked_ns) & (worked_ns > 0)
    per_ms = 1e6 * work.step_divisor
    table = total.assign(
        name=total[keys[0]],
        ms=total["own_ns"] / per_ms,
        beside_ms=(total["beside_ns"] / per_ms).where(total["beside_ns"] > 0),
        share=total["own_ns"] / total_ns if total_ns else 0.0,
        tensor_core_share=total["tensor_core_ns"] / total["own_ns"].where(total["own_ns"] > 0),
        launches_per_step=total["launches"] / work.step_divisor,
        mean_us=worked_ns / total["launches"].where(total["launches"] > 0) / 1e3,
        gb_per_s=(total["bytes"] / worked_ns).where((total["bytes"] > 0) & (total["category"] == "memcpy")),
        roof_share=(total["roof_ns"] / worked_ns).where(has_roof),
        above_ms=((worked_ns - total["roof_ns"]) / per_ms).where(has_roof),
        tflops=(total["flops"] / worked_ns / 1e3).where(total["flops"] > 0),
        changes=_changes(work, chosen, total, keys),
    )
    return table.drop(columns=_SUMS).sort_values(["ms", "name"], ascending=[False, True], ignore_index=True)


def own_time_by_two_groupings(work: GpuWork, outer: Grouping, inner: Grouping) -> pd.DataFrame:
    """Return own time by two groupings at once.

    Columns: ``outer``, ``inner``, ms per step, and the owner of most of this time.
    """
    sums = work.rows.groupby([outer, inner, "owner"], as_index=False, sort=False)["own_ns"].sum()
    sums = sums.sort_values("own_ns", ascending=False, kind="stable")
    group_ns = sums.groupby([outer, inner], sort=False)["own_ns"].transform("sum")
    table = sums.assign(ms=group_ns / 1e6 / work.step_divisor).drop_duplicates([outer, inner])
    return table.drop(columns="own_ns").reset_index(drop=True)


def _changes(work: GpuWork, chosen: pd.DataFrame, total: pd.DataFrame, keys: list[str]) -> list[tuple[int, ...]]:
    """Return for each row of ``total`` the positions of the findings about this row."""
    positions: dict[tuple[object, ...], list[int]] = {}
    for position, rows in work.changes.items():
        touched = chosen.loc[chosen.index.intersection(rows), keys].drop_duplicates()
        for key in touched.itertuples(index=False, name=None):
            positions.setdefault(key, []).append(position)
    return [tuple(positions.get(key, ())) for key in total[keys].itertuples(index=False, name=None)]


def host_times(rank: RankView, by: Grouping) -> pd.DataFrame:
    """Return the profiled own time of operators on the host, by name or also by shapes.

    Columns: the key columns, host_ms and calls_per_step. Includes operators that launch nothing.
    """
    rows = rank.frame(_SQL["host"].format(shape="input_dims" if by == "shape" else "NULL"))
    rows = rows.assign(operator=rows["name"], shapes=rows["input_dims"].map(shapes_text))
    sums = rows.groupby(key_columns(by), as_index=False, sort=False)[["host_ns", "calls"]].sum()
    return sums.assign(
        host_ms=sums.pop("host_ns") / 1e6 / rank.step_divisor, calls_per_step=sums.pop("calls") / rank.step_divisor
    )
