"""FP32 matrix products that are too fast for the GPU's FP32 units, so they used tensor cores (TF32).

The names of Triton's and users' kernels do not show which units a product used. Its rate may show it, because only tensor cores
exceed the FP32 peak.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sawtooth.analysis.derive.classes import Classes
from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.flop_counts import FLOP_CATEGORIES, FlopCounts
from sawtooth.analysis.knowledge.flops import FP32_UNCERTAIN
from sawtooth.analysis.knowledge.kernel_names import TensorCores
from sawtooth.analysis.knowledge.owners import OWNER_KEYS, owner_of
from sawtooth.analysis.metrics.mfu import FASTEST_CLOCK

BY_RATE = "faster than the GPU's FP32 units can be: TF32"
LIKE_OTHERS = "other FP32 products of this run are faster than the GPU's FP32 units can be: TF32 is on"

Decided = dict[tuple[int, int | None, int | None], TensorCores]  # By kernel, operator and signature.


def classes_by_rate(events: TraceEvents, classes: Classes, counts: FlopCounts, peak: float | None, decided: Decided) -> Classes:
    """Return the classes with the tensor-core use that rates prove, or else ``classes`` itself.

    ``peak`` is the GPU's FP32 peak in FLOP/s. ``decided`` has the decisions of earlier parts of the recording and is extended, so
    that each kernel has one class in all parts.
    """
    table = classes.table
    uncertain = counts.dtypes.index(FP32_UNCERTAIN) if FP32_UNCERTAIN in counts.dtypes else None
    if peak is None or uncertain is None:
        return classes
    operator = np.maximum(counts.counted_operator_of, 0)
    product = (counts.counted_operator_of >= 0) & classes.among("category", FLOP_CATEGORIES)
    time = np.bincount(operator[product], weights=(events.gpu.end - events.gpu.start)[product], minlength=len(counts.count))
    undecided = product & (counts.dtype[operator] == uncertain) & classes.among("tensor_cores", ("unknown",))
    rows = classes.row[undecided]
    flops = np.bincount(rows, weights=counts.count[operator[undecided]], minlength=len(table))
    busy = np.bincount(rows, weights=time[operator[undecided]], minlength=len(table))
    operators = np.unique(rows)
    fast = operators[flops[operators] > FASTEST_CLOCK * peak * busy[operators] / 1e9]
    names, categories = set(table["name"].iloc[fast]), set(table["category"].iloc[fast])
    uses, reasons, owners = table["tensor_cores"].tolist(), table["reason"].tolist(), table["owner"].tolist()
    keys = list(table[["name", "operator_name", "signature"]].itertuples(index=False, name=None))
    for row in operators.tolist():
        name, category = table["name"].iloc[row], table["category"].iloc[row]
        proven: TensorCores = "yes" if name in names else "likely" if category in categories else "unknown"
        use = decided.setdefault(keys[row], proven)
        if use != "unknown":
            uses[row], reasons[row] = use, BY_RATE if use == "yes" else LIKE_OTHERS
            owners[row] = owner_of(category, use, "kernel")
    if uses == table["tensor_cores"].tolist():
        return classes
    owner = np.array([OWNER_KEYS.index(key) for key in owners], np.int8)
    changed = table.assign(tensor_cores=uses, reason=reasons, owner=owners)
    return replace(classes, table=changed, owner=owner[classes.row])
