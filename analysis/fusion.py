"""Chains of kernels that only move the same data: what a compiler or a fused operator would run as one kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.findings import RuleInput
from analysis.step_work import numel
from analysis.whatif import Edit, TimedOps, WithoutOps

FUSABLE = ("elementwise", "norm", "softmax", "reduction", "copy")
SHORTEST_CHAIN = 2  # two kernels over the same data read and write it twice where once would do
FUSED_COST = (
    1.1  # the fused kernel takes little more than the slowest of the chain: it still reads every input and writes the result
)


@dataclass(frozen=True)
class Chain:
    """Rows of a ``step_work`` frame that follow one another on one stream and work on the same number of elements."""

    rows: np.ndarray
    operators: frozenset[str]


def elements(work: pd.DataFrame) -> np.ndarray:
    """Return the elements of the largest input of each row's operator, 0 where shapes are not recorded."""
    inputs = work.drop_duplicates("signature_id")
    most = {
        key: max((numel(shape) for shape in dims or []), default=0)
        for key, dims in zip(inputs["signature_id"], inputs["dims"], strict=True)
    }
    return work["signature_id"].map(most).fillna(0).to_numpy(np.int64)


def chains(work: pd.DataFrame) -> list[Chain]:
    """Return the maximal fusable chains of ``work`` (see ``step_work``), in order."""
    size = elements(work)
    fusable = work["category"].isin(FUSABLE).to_numpy() & (work["kind"] == "kernel").to_numpy() & (size > 1)
    found: list[Chain] = []
    operators = work["operator"].tolist()
    for _, part in work.reset_index(drop=True).groupby(["step", "stream"], sort=False):
        run: list[int] = []
        for index in [*part.index.tolist(), -1]:
            if index >= 0 and fusable[index] and (not run or size[index] == size[run[-1]]):
                run.append(index)
                continue
            if len(run) >= SHORTEST_CHAIN:
                found.append(Chain(np.array(run), frozenset(o for o in (operators[i] for i in run) if isinstance(o, str))))
            run = [index] if index >= 0 and fusable[index] else []
    return found


def fused(work: pd.DataFrame, given: list[Chain]) -> list[Edit]:
    """Return the edits that run each chain as one kernel as long as its longest times FUSED_COST."""
    ids, durations = work["gpu_op_id"].to_numpy(np.int64), work["dur_ns"].to_numpy(np.int64)
    kept, timed, gone = [], [], []
    for chain in given:
        first = int(chain.rows[0])
        kept.append(int(ids[first]))
        timed.append(min(int(durations[chain.rows].max() * FUSED_COST), int(durations[chain.rows].sum())))
        gone += ids[chain.rows[1:]].tolist()
    return [TimedOps(tuple(kept), tuple(timed)), WithoutOps(tuple(gone))] if kept else []


def marked(given: RuleInput, marks: frozenset[str], shortest: int = SHORTEST_CHAIN) -> tuple[pd.DataFrame, list[Edit]]:
    """Return the rows of the run's chains that hold one of the operators ``marks``, and the edits that fuse each such chain."""
    work = given.work
    found = [chain for chain in chains(work) if chain.operators & marks and len(chain.rows) >= shortest]
    rows = work.iloc[np.concatenate([chain.rows for chain in found])] if found else work.iloc[:0]
    return rows, fused(work, found)
