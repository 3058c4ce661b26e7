"""Recurrent layers that a library runs as one operator: torch.compile stops at them, and brings nothing to what cuDNN does.

Dynamo breaks its graph at ``nn.RNN``, ``nn.GRU`` and ``nn.LSTM`` on purpose, and may leave what follows in the same function uncompiled
(https://github.com/pytorch/pytorch/issues/141184); where it is told not to, the layer is as fast as before at best
(https://github.com/pytorch/pytorch/pull/185163).
"""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.queries.calls import operators

LAYERS = {"lstm": "nn.LSTM", "gru": "nn.GRU", "rnn_tanh": "nn.RNN", "rnn_relu": "nn.RNN"}
OF_A_LAYER = r"^aten::(_cudnn_rnn|_cudnn_rnn_backward|miopen_rnn|miopen_rnn_backward)$"
PACKED = r"^aten::_pack_padded_sequence$"


def recurrent_layer(context: RuleContext) -> str | None:
    """Return what the recurrent layer of the counted steps is called in PyTorch, ``nn.LSTM``; None where none of them runs whole sequences."""
    called = operators(context, rf"^aten::({'|'.join(LAYERS)})$").frame["name"]
    return LAYERS[str(called.iloc[0]).removeprefix("aten::")] if len(called) else None


def packs_sequences(context: RuleContext) -> bool:
    """Tell whether sequences of different lengths are packed for it: then each batch launches other work."""
    return bool(operators(context, PACKED).count)
