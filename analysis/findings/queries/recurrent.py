"""Recurrent layers that a library runs as one operator, and which torch.compile does not improve.

Dynamo breaks the graph at ``nn.RNN``, ``nn.GRU`` and ``nn.LSTM`` on purpose. Dynamo may leave the function's code after the layer
uncompiled (https://github.com/pytorch/pytorch/issues/141184). With an option to prevent the break, the layer is at best as fast as
before (https://github.com/pytorch/pytorch/pull/185163).
"""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.queries.calls import operators

LAYERS = {"lstm": "nn.LSTM", "gru": "nn.GRU", "rnn_tanh": "nn.RNN", "rnn_relu": "nn.RNN"}
LAYER_OPERATORS = r"^aten::(_cudnn_rnn|_cudnn_rnn_backward|miopen_rnn|miopen_rnn_backward)$"
PACKING_OPERATOR = r"^aten::_pack_padded_sequence$"


def recurrent_layer(context: RuleContext) -> str | None:
    """Return the PyTorch name of the counted steps' recurrent layer, such as ``nn.LSTM``.

    None if no layer runs whole sequences.
    """
    names = operators(context, rf"^aten::({'|'.join(LAYERS)})$").frame["name"]
    return LAYERS[str(names.iloc[0]).removeprefix("aten::")] if len(names) else None


def packs_sequences(context: RuleContext) -> bool:
    """Return whether the layer gets packed sequences, so that each batch launches different work."""
    return bool(operators(context, PACKING_OPERATOR).count_per_step)
