"""What is known of cuDNN's recurrent layers, which a trace shows as one operator a pass."""

from __future__ import annotations

from typing import Any

RECURRENT = ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")
HIDDEN_STATE = 4  # the place of h0 among their arguments: layers × directions, batch, width
# Of a pass's scratch beside its matrices, for each layer and direction, whatever the batch: by the sizes at seven batches of two models (PyTorch 2.11, H200), to 512 bytes.
SCRATCH_BYTES = 8 << 20


def layers_and_directions(dims: Any) -> int:
    """Return how many layers × directions a pass with these shapes has, 0 where they do not tell."""
    state = dims[HIDDEN_STATE] if isinstance(dims, list) and len(dims) > HIDDEN_STATE else None
    return state[0] if isinstance(state, list) and state and isinstance(state[0], int) else 0
