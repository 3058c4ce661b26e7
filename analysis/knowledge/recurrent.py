"""cuDNN's recurrent layers, which a trace shows as one operator per pass."""

from __future__ import annotations

from typing import Any

RECURRENT = ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")
HIDDEN_STATE = 4  # h0 has this position among the arguments. Its shape is layers × directions, batch, width.
# A pass needs this much scratch memory besides its matrices, per layer and direction, for any batch size. It was measured to
# 512 bytes at seven batch sizes of two models (PyTorch 2.11, H200).
SCRATCH_BYTES = 8 << 20


def layers_and_directions(dims: Any) -> int:
    """Return the number of layers × directions of a pass with these shapes, 0 if it is not known."""
    state = dims[HIDDEN_STATE] if isinstance(dims, list) and len(dims) > HIDDEN_STATE else None
    return state[0] if isinstance(state, list) and state and isinstance(state[0], int) else 0
