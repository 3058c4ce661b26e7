"""Tests of operators' arguments, for which a fast path and the full decoder give equal columns."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from sawtooth.ingest.trace.torch_json import operators
from sawtooth.ingest.trace.torch_json.operators import OperatorArguments
from sawtooth.ingest.trace.torch_json.text.events import EVENTS_DECODER

INPUTS = (
    '"Concrete Inputs": ["", "%d"], "Input type": ["float", "Scalar"], "Input Strides": [[1], []], "Input Dims": [[%d], []]'
)
COMMON = '{"External id": %d,"Record function id": 0, "Sequence number": 7, "Fwd thread id": 1, ' + INPUTS + ', "Ev Idx": %d}'
PLAIN = '{"External id": %d,"Ev Idx": 3}'
COLLECTIVE = '{"External id": 8, "Collective name": "allreduce", "dtype": "Float", ' + INPUTS % (1, 2) + ', "Ev Idx": 9}'
COMPILED = '{"External id": 8, "kernel_backend": "triton", ' + INPUTS % (1, 2) + ', "Ev Idx": 9}'
# the columns in the order of ``meanings``
COLUMNS = ("collective", "external_id", "extra", "forward_thread", "sequence_number", "signature_id")
UNCOMMON = [
    '{"Ev Idx": 1, "External id": 5, ' + INPUTS % (3, 4) + "}",  # The inputs are last.
    '{"Input Dims": [[6]], "External id": 5, "Concrete Inputs": [""], "Ev Idx": 1}',  # The inputs are separate.
    '{"External id": 5, "Concrete Inputs": [""], "Call stack": "a.py", "Ev Idx": 1}',
    '{"External id": 5, "Concrete Inputs": 3, "Ev Idx": 1}',
    '{"External id": 5, "Concrete Inputs": ["\\"Ev Idx\\""], "Input Dims": [[]], "Ev Idx": 1}',
    '{"External id": "x", "Concrete Inputs": [""], "Ev Idx": [1]}',
    '{"External id": 5, "Concrete Inputs": [""], "Ev Idx": 1, "Concrete Inputs": ["1"], "Ev Idx": 1}',
    "[1, 2]",
]


def meanings(arguments: OperatorArguments, texts: list[str]) -> tuple[list[tuple[object, ...]], list[object]]:
    """Return a row of column values for each of ``texts``, and the arguments of collectives."""
    events = EVENTS_DECODER.decode(
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


@pytest.mark.parametrize("odd", [[], [COLLECTIVE], [COMPILED, COLLECTIVE], *([text] for text in UNCOMMON)])
def test_the_fast_path_for_operators_gives_the_same_result(odd: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [
        [COMMON % (n, n % 3, 4 + n % 2, n) if n % 4 else PLAIN % n for n in range(start, start + 40)] + odd * (start != 40)
        for start in (0, 40, 80)
    ]
    fast = OperatorArguments(Counter())
    fast_rows = [meanings(fast, block) for block in blocks]
    monkeypatch.setattr(operators, "MAX_RARE_NAMES", -1)  # The full decoder reads all events.
    slow = OperatorArguments(Counter())
    assert [meanings(slow, block) for block in blocks] == fast_rows
    assert len(fast_rows[0][0]) == 40 + len(odd)


def test_inputs_of_common_operators_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million operators have a few thousand different inputs."""
    arguments = OperatorArguments(Counter())
    meanings(arguments, [COMMON % (n, n % 3, 4, n) for n in range(600)])
    decoded: list[bytes] = []
    monkeypatch.setattr(operators, "INPUTS_DECODER", type("Decoder", (), {"decode": lambda self, text: decoded.append(text)})())
    monkeypatch.setattr(operators, "decode_arguments", None)
    meanings(arguments, [COMMON % (n, n % 3, 4, n) for n in range(600)])
    assert decoded == []


def test_repeated_call_stacks_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most operators of a step have call stacks of the step before."""
    parsed: list[object] = []
    object_of = operators.object_of
    monkeypatch.setattr(operators, "object_of", lambda raw: parsed.append(raw) or object_of(raw))
    arguments = OperatorArguments(Counter())
    inputs = '"Call stack": "a.py(%d): f", "Input Dims": [[%d]]'
    texts = ['{"External id": ' + f"{n}, " + inputs % (n % 3, n % 2) + "}" for n in range(600)]
    columns = [dict(zip(COLUMNS, row, strict=True)) for row in meanings(arguments, texts)[0]]
    assert len(parsed) == 3
    assert [row["extra"] for row in columns[:3]] == [(f'{{"Call stack":"a.py({n}): f"}}',) for n in range(3)]
    assert [row["external_id"] for row in columns] == list(range(600))
    assert [row["signature_id"][0] for row in columns] == ["[[0]]", "[[1]]"] * 300


@pytest.mark.parametrize("nothing", ['"Call stack": null', '"Module Hierarchy": ""', '"other": {"Call stack": "a.py"}'])
def test_empty_arguments_are_not_stored(nothing: str) -> None:
    arguments = OperatorArguments(Counter())
    meanings(arguments, ['{"External id": 1, ' + nothing + "}"] * 2)
    assert not arguments.extras.meanings
