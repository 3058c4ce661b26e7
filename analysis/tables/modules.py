"""The tree of modules with their GPU time, and how two runs differ in it.

Values are per step, or over all steps if none is counted.
"""

from __future__ import annotations

import re

import pandas as pd

from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

PREFIX = "nn.Module: "
OUTSIDE = "outside modules"
_SQL = queries_of(__file__)
ORDINAL = re.compile(r"_\d+$")  # The profiler numbers the modules of a class: Linear_0, Linear_1.


def modules(rank: RankView) -> pd.DataFrame:
    """Return the modules of the counted steps in the order of calls.

    Columns: name, path (names from the top), module and parent (ids in the tree); forward_ms, backward_ms and their sum gpu_ms,
    per step; total_gpu_ms, which includes the modules inside. Without counted steps, times are of all steps.

    The gpu_ms of all rows sum to the GPU work that a step launches, because one row has the work outside modules. Empty if no module
    calls are recorded.
    """
    rows = rank.frame(_SQL["modules"])
    rows["name"] = rows["name"].fillna(OUTSIDE).str.removeprefix(PREFIX)
    rows["path"] = _paths(rows)
    rows = rows.iloc[_called_order(rows)].reset_index(drop=True)
    table = rows[["name", "path", "module", "parent"]].copy()
    for column in ("forward", "backward"):
        table[f"{column}_ms"] = rows[f"{column}_ns"].astype("Float64") / 1e6 / rank.step_divisor
    table["gpu_ms"] = (rows["forward_ns"] + rows["backward_ns"]) / 1e6 / rank.step_divisor
    table["total_gpu_ms"] = (rows["total_forward_ns"] + rows["total_backward_ns"]) / 1e6 / rank.step_divisor
    return table


def module_changes(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return run A's module tree with each module's GPU time in both runs, by path, ms per step.

    Columns: name, path, module, parent, ms_a and ms_b (including the modules inside), and own_change_ms (B - A, of the module
    itself). Modules that exist only in run B come last, without a position in the tree.
    """
    sums = ["total_gpu_ms", "gpu_ms"]
    tree_a, tree_b = (tree.astype(dict.fromkeys(sums, float)).fillna(dict.fromkeys(sums, 0.0)) for tree in (a, b))
    sums_b = tree_b.groupby("path")[sums].sum().add_suffix("_b")
    joined = tree_a[["name", "path", "module", "parent", *sums]].join(sums_b, on="path")
    new = tree_b[~tree_b["path"].isin(tree_a["path"])][["name", "path", *sums]]
    new = new.rename(columns={column: f"{column}_b" for column in sums})
    rows = pd.concat([joined, new], ignore_index=True).fillna(dict.fromkeys([*sums, "total_gpu_ms_b", "gpu_ms_b"], 0.0))
    rows["own_change_ms"] = rows.pop("gpu_ms_b") - rows.pop("gpu_ms")
    return rows.rename(columns={"total_gpu_ms": "ms_a", "total_gpu_ms_b": "ms_b"})


def _paths(rows: pd.DataFrame) -> list[str]:
    """Return each module's path: the names from the top.

    In ``rows``, callers must come before the modules that they call.
    """
    path: dict[int, str] = {}
    for module, parent, name in zip(rows["module"], rows["parent"], rows["name"], strict=True):
        if pd.notna(module):
            path[int(module)] = name if pd.isna(parent) else f"{path[int(parent)]} / {name}"
    return [OUTSIDE if pd.isna(module) else path[int(module)] for module in rows["module"]]


def _called_order(rows: pd.DataFrame) -> list[int]:
    """Return the positions of the rows in tree order; children are in the order of first calls.

    The row of work outside modules comes last.
    """
    inside: dict[int, list[int]] = {}
    for position, (module, parent) in enumerate(zip(rows["module"], rows["parent"], strict=True)):
        if pd.notna(module):
            inside.setdefault(-1 if pd.isna(parent) else int(parent), []).append(position)
    order: list[int] = []
    open_ = inside.get(-1, [])[::-1]
    while open_:
        position = open_.pop()
        order.append(position)
        open_ += inside.get(int(rows["module"].iloc[position]), [])[::-1]
    return [*order, *range(len(order), len(rows))]
