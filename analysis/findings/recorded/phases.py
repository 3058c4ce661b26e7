"""GPU work by the phase of a step that launched it: forward, loss, backward, optimizer and copies.

Autograd's nodes, the optimizer's annotations and the names of loss operators separate the phases.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, launched_by_optimizer, launched_inside
from sawtooth.analysis.store.rank_view import RankView

LOSS = r"^aten::\w*loss\w*$"  # Matches PyTorch's own losses. Their backward passes run in autograd's nodes.
COPIES = ("memcpy", "memset")


def phases_of(rank: RankView, ids: NDArray[np.int64], categories: pd.Series) -> NDArray[np.str_] | None:
    """Return the phase of each GPU operation in ``ids``, whose categories are ``categories``.

    "forward" is all work outside of the other phases, including a loss without PyTorch's loss operators. None if the trace marks
    neither a backward pass nor an optimizer step.
    """
    recording, device = rank.recording, rank.device
    optimizer = np.isin(ids, launched_by_optimizer(recording, device))
    backward = np.isin(ids, launched_inside(recording, device, f"^{AUTOGRAD_NODE}"))
    if not (optimizer | backward).any():
        return None
    loss = np.isin(ids, launched_inside(recording, device, LOSS))
    copies = categories.isin(COPIES).to_numpy(bool)
    return np.select([optimizer, backward, loss, copies], ["optimizer", "backward", "loss", "copies"], "forward")
