"""Operators' arguments come to the same columns whether they are read the quick way, for what is usual, or each by itself."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from sawtooth.ingest.trace.torch_json import operators
from sawtooth.ingest.trace.torch_json.operators import OperatorArguments
from sawtooth.ingest.trace.torch_json.text.events import EVENTS

INPUTS = (
    '"Concrete Inputs": ["", "%d"], "Input type": ["float", "Scalar"], "Input Strides": [[1], []], "Input Dims": [[%d], []]'
)
USUAL = '{"External id": %d,"Record function id": 0, "Sequence number": 7, "Fwd thread id": 1, ' + INPUTS + ', "Ev Idx": %d}'
PLAIN = '{"External id": %d,"Ev Idx": 3}'
COLLECTIVE = '{"External id": 8, "Collective name": "allreduce", "dtype": "Float", ' + INPUTS % (1, 2) + ', "Ev Idx": 9}'
COMPILED = '{"External id": 8, "kernel_backend": "triton", ' + INPUTS % (1, 2) + ', "Ev Idx": 9}'
ODD = [
    '{"Ev Idx": 1, "External id": 5, ' + INPUTS % (3, 4) + "}",  # its inputs end the event
    '{"Input Dims": [[6]], "External id": 5, "Concrete Inputs": [""], "Ev Idx": 1}',  # stand apart
    '{"External id": 5, "Concrete Inputs": [""], "Call stack": "a.py", "Ev Idx": 1}',
    '{"External id": 5, "Concrete Inputs": 3, "Ev Idx": 1}',
    '{"External id": 5, "Concrete Inputs": ["\\"Ev Idx\\""], "Input Dims": [[]], "Ev Idx": 1}',
    '{"External id": "x", "Concrete Inputs": [""], "Ev Idx": [1]}',
    '{"External id": 5, "Concrete Inputs": [""], "Ev Idx": 1, "Concrete Inputs": ["1"], "Ev Idx": 1}',
    "[1, 2]",
]


def meanings(arguments: OperatorArguments, texts: list[str]) -> tuple[list[tuple[object, ...]], list[object]]:
    """Return what the columns of events with these arguments say, an event a row, and the arguments of collectives."""
    events = EVENTS.decode(
        "[" + ",".join(f'{{"ph": "X", "name": "{n % 5}", "args": {text}}}' for n, text in enumerate(texts)) + "]"
    )
    calls: list[object] = []
    columns = arguments.columns(events, np.array([int(e.name) for e in events], np.int32), calls)
    signatures, extras = list(arguments.signatures.meanings), list(arguments.extras.meanings)
    columns_of_texts = {
        "signature_id": signatures,
        "extra": extras,
        "collective": [msgspec.to_builtins(call) for call in calls],
    }
    rows = []
    for row in range(len(events)):
        values = [(key, int(column[row])) for key, column in sorted(columns.items())]
        rows.append(
            tuple(columns_of_texts[key][value] if key in columns_of_texts and value >= 0 else value for key, value in values)
        )
    return rows, calls


@pytest.mark.parametrize("odd", [[], [COLLECTIVE], [COMPILED, COLLECTIVE], *([text] for text in ODD)])
def test_usual_operators_are_read_as_all_others(odd: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [
        [USUAL % (n, n % 3, 4 + n % 2, n) if n % 4 else PLAIN % n for n in range(start, start + 40)] + odd * (start != 40)
        for start in (0, 40, 80)
    ]
    quick = OperatorArguments(Counter())
    once = [meanings(quick, block) for block in blocks]
    monkeypatch.setattr(operators, "MOST_RARE", -1)  # all are read as those that are not usual
    slow = OperatorArguments(Counter())
    assert [meanings(slow, block) for block in blocks] == once
    assert len(once[0][0]) == 40 + len(odd)


def test_the_inputs_of_usual_operators_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million operators have a few thousand different inputs: only these are decoded."""
    arguments = OperatorArguments(Counter())
    meanings(arguments, [USUAL % (n, n % 3, 4, n) for n in range(600)])
    decoded: list[bytes] = []
    monkeypatch.setattr(operators, "INPUTS", type("Decoder", (), {"decode": lambda self, text: decoded.append(text)})())
    monkeypatch.setattr(operators, "decoded", None)
    meanings(arguments, [USUAL % (n, n % 3, 4, n) for n in range(600)])
    assert decoded == []
