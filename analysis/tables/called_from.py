"""Find the lines of the user's code that call operators, from the Python calls around them.

Operators in the backward pass get the line of their forward operator.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from sawtooth.analysis.derive.events import names_of, read_cpu_ops
from sawtooth.analysis.derive.host import load_host_facts
from sawtooth.analysis.derive.modules import forward_operators
from sawtooth.analysis.derive.operators import innermost_interval, nearest_marked_operator
from sawtooth.analysis.knowledge.frames import is_user_line
from sawtooth.analysis.store.rank_view import RankView

_LAUNCHED = "SELECT cpu_op_id, sum(dur_ns)::BIGINT AS ns FROM step_gpu_ops WHERE device = $device AND summed AND cpu_op_id IS NOT NULL GROUP BY 1"
COLUMNS = ("operator", "line", "gpu_ms", "calls")


def called_from(rank: RankView) -> pd.DataFrame:
    """Return the user's own frames that call operators.

    Columns: operator, line (as recorded), gpu_ms (GPU time of what these calls launched themselves; per step, or in the
    window if no step is counted), and calls (their number in the whole trace). Rows with the most GPU time come first, then
    those with the most calls. In the backward pass, the line is that of the operator whose gradient is computed. Calls
    without a line of the user are left out. Empty if the trace has no Python calls.
    """
    facts = load_host_facts(rank.recording.cursor, 0)
    names = np.array(names_of(rank.recording.cursor), dtype=object)
    user = np.zeros(len(names), bool)
    used = np.unique(facts.python_name)
    user[used] = [is_user_line(name) for name in names[used]]
    if not user.any():
        return pd.DataFrame(columns=list(COLUMNS))
    ops = read_cpu_ops(rank.recording.cursor, 0)
    made_by = forward_operators(ops)
    node = nearest_marked_operator(made_by >= 0, ops.parent, np.arange(len(ops)))
    callers = np.where(node >= 0, made_by[np.maximum(node, 0)], np.arange(len(ops)))
    call = innermost_interval(
        thread=facts.python_thread,
        start=facts.python_start,
        end=facts.python_end,
        parent=facts.python_parent,
        at_thread=ops.thread[callers],
        at=ops.start[callers],
    )
    frame = nearest_marked_operator(user[facts.python_name], facts.python_parent, call)
    launched = rank.frame(_LAUNCHED)
    ns = np.zeros(len(ops), np.int64)
    ns[launched["cpu_op_id"].to_numpy(np.int64)] = launched["ns"].to_numpy(np.int64)
    has_frame = (frame >= 0) & ~ops.annotation
    rows = pd.DataFrame({"operator": ops.name[has_frame], "line": facts.python_name[frame[has_frame]], "ns": ns[has_frame]})
    sums = rows.groupby(["operator", "line"], as_index=False).agg(ns=("ns", "sum"), calls=("ns", "size"))
    table = sums.assign(
        operator=names[sums["operator"].to_numpy()],
        line=names[sums["line"].to_numpy()],
        gpu_ms=sums["ns"] / 1e6 / rank.step_divisor,
    )
    return table[list(COLUMNS)].sort_values(["gpu_ms", "calls", "line"], ascending=[False, False, True], ignore_index=True)
