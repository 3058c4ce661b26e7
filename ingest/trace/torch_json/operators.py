"""Convert the arguments of operators into columns.

Nearly all operators have the same few arguments, and their inputs repeat. Inputs are compared as text and decoded only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from sawtooth.ingest.decode import integers
from sawtooth.ingest.trace.spool import Columns
from sawtooth.ingest.trace.torch_json.arguments import (
    EXTRA_KEYS,
    EXTRA_PATTERN,
    CollectiveArgs,
    Number,
    OpArgs,
    OpExtraArgs,
    OpInputArgs,
    ShapeArgs,
    extra_texts,
    input_texts,
)
from sawtooth.ingest.trace.torch_json.decoding import collectives, decode_arguments, object_of, text_of
from sawtooth.ingest.trace.torch_json.interning import CanonicalIds
from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS, Event

# Number of distinct signatures (inputs of operators). A scalar that changes in every step makes a new signature in every step.
MAX_SIGNATURES = 300_000
MAX_EXTRAS = 200_000  # Number of distinct call stacks and other further arguments.
NO_INPUTS = b"\n\n\n\n"  # An operator without inputs has these texts.
MAX_CACHED_TEXTS = 1 << 14  # The ids of this many texts of inputs, and of further arguments, are cached.
# Number of names whose operators have further arguments. A trace has about ten (collectives and compiled kernels).
MAX_RARE_NAMES = 64
INPUTS_BEGIN, AFTER_INPUTS = b'"Concrete Inputs"', b', "Ev Idx"'  # Kineto writes these texts around the inputs.
INPUTS_REMOVED = b'"inputs cut out": 1, "Ev Idx"'  # This text replaces the inputs.


class UsualArgs(OpArgs, forbid_unknown_fields=True, gc=False):
    """All arguments of a usual operator without its inputs."""

    record: Number = field(name="Record function id", default=None)
    index: Number = field(name="Ev Idx", default=None)
    inputs_removed: Number = field(name="inputs cut out", default=None)


class UsualInputs(ShapeArgs, forbid_unknown_fields=True, gc=False):
    """The inputs of a usual operator, which are decoded separately."""


USUAL_DECODER, INPUTS_DECODER = msgspec.json.Decoder(list[UsualArgs]), msgspec.json.Decoder(UsualInputs)


class InputIds(dict[bytes, int]):
    """Ids of signatures by the text of the inputs.

    Raises one of DECODE_ERRORS for a text with other arguments besides inputs.
    """

    def __init__(self, signatures: CanonicalIds) -> None:
        self._signatures = signatures

    def __missing__(self, text: bytes) -> int:
        value = self._signatures[_signature(INPUTS_DECODER.decode(b"{%b%b}" % (INPUTS_BEGIN, text)))]
        if len(self) < MAX_SIGNATURES and value >= 0:
            self[text] = value
        return value


class OperatorArguments:
    """Conversion of operators' and annotations' arguments into columns, one group of events at a time."""

    def __init__(self, notes: Counter[str]) -> None:
        self.signatures = CanonicalIds(list, MAX_SIGNATURES, notes)
        self.extras = CanonicalIds(dict, MAX_EXTRAS, notes)
        self._inputs = InputIds(self.signatures)
        # Ids by text. Inputs and call stacks repeat in every step, so each text is decoded once.
        self._signature_cache, self._extra_cache = dict[bytes, int](), dict[bytes, int]()
        self._rare: set[int] = set()  # The ids of names whose operators have further arguments.

    def columns(self, events: list[Event], names: NDArray[np.int32], calls: list[CollectiveArgs]) -> Columns:
        """Return the columns of ``events``, whose names have the ids ``names``.

        The arguments of collectives are appended to ``calls``.
        """
        if len(self._rare) > MAX_RARE_NAMES:
            return self._general_columns(events, calls)
        rare = np.isin(names, list(self._rare))
        usual_columns = self._usual_columns(list(compress(events, (~rare).tolist())) if rare.any() else events)
        if usual_columns is None:
            self._rare.update(name for name, event in zip(names.tolist(), events, strict=True) if not self._is_usual(event))
            return self._general_columns(events, calls)
        if not rare.any():
            return usual_columns
        further = self._general_columns(list(compress(events, rare.tolist())), calls)
        return {key: _merge(rare, further[key], values) for key, values in usual_columns.items()}

    def _usual_columns(self, events: list[Event]) -> Columns | None:
        """Return the columns; None if an event has other than the usual arguments in Kineto's order."""
        try:
            inputs, text = self._without_inputs(text_of(events))
            args = USUAL_DECODER.decode(text)
        except DECODE_ERRORS:
            return None
        signature = no_ids(len(events))
        if inputs:
            rows = [row for row, a in enumerate(args) if a.inputs_removed is not None]
            if len(rows) != len(inputs):
                return None
            signature[rows] = inputs
        return _ids(args) | {"signature_id": signature, "extra": no_ids(len(events)), "collective": no_ids(len(events))}

    def _is_usual(self, event: Event) -> bool:
        try:
            USUAL_DECODER.decode(self._without_inputs(text_of([event]))[1])
        except DECODE_ERRORS:
            return False
        return True

    def _without_inputs(self, text: bytes) -> tuple[list[int], bytes]:
        """Return the signatures of the inputs in ``text``, and the text with marks in place of the inputs.

        Raises one of DECODE_ERRORS.
        """
        first, *other_texts = text.split(INPUTS_BEGIN)
        parts = [other.partition(AFTER_INPUTS) for other in other_texts]
        signatures = [self._inputs[inputs] for inputs, _, _ in parts]
        return signatures, INPUTS_REMOVED.join([first, *[rest for _, _, rest in parts]])

    def _general_columns(self, events: list[Event], calls: list[CollectiveArgs]) -> Columns:
        text = text_of(events)
        signature = extra = no_ids(len(events))
        has_extras = EXTRA_PATTERN.search(text) is not None
        has_inputs = has_extras or b'"Input' in text or b'"Concrete' in text
        args = decode_arguments(events, OpExtraArgs if has_extras else OpInputArgs if has_inputs else OpArgs, text)
        if has_inputs:
            keys = [b"\n".join(input_texts(a)) for a in args]
            signature = np.fromiter(map(self._signature_id, args, keys), np.int32, len(events))
        if has_extras:
            keys = [b"\n".join(extra_texts(a)) for a in args]
            extra = np.fromiter(map(self._extra_id, events, keys), np.int32, len(events))
        return _ids(args) | {"signature_id": signature, "extra": extra, "collective": collectives(events, text, calls)}

    def _signature_id(self, args: Any, text: bytes) -> int:
        """Return the id of the inputs in ``args``; ``text`` has the inputs as text.

        The id is -1 without inputs, or if there are too many signatures already.
        """
        if (signature_id := self._signature_cache.get(text)) is None:
            signature_id = self.signatures[_signature(args)]
            if signature_id >= 0 or text == NO_INPUTS:
                _cache(self._signature_cache, text, signature_id)
        return signature_id

    def _extra_id(self, event: Event, text: bytes) -> int:
        """Return the id of the further arguments of ``event``; ``text`` has the arguments as text.

        The id is -1 without further arguments, or if there are too many different ones already.
        """
        if (extra_id := self._extra_cache.get(text)) is None:
            args = object_of(event.args)
            extra = {key: args[key] for key in EXTRA_KEYS if args.get(key) not in (None, "", [])}
            extra_id = self.extras[(msgspec.json.encode(extra),)] if extra else -1
            if extra_id >= 0 or not extra:
                _cache(self._extra_cache, text, extra_id)
        return extra_id


def _cache(ids: dict[bytes, int], text: bytes, value: int) -> None:
    if len(ids) < MAX_CACHED_TEXTS:
        ids[text] = value


def _signature(args: Any) -> tuple[bytes, ...]:
    return bytes(args.dims or args.dims_2021), bytes(args.types), bytes(args.strides), bytes(args.concrete)


def _ids(args: Sequence[OpArgs]) -> Columns:
    return {
        "external_id": integers([a.external for a in args]),
        "sequence_number": integers([a.sequence for a in args]),
        "forward_thread": integers([a.forward for a in args]),
    }


def _merge(rare: NDArray[np.bool_], further: NDArray[np.generic], usual_values: NDArray[np.generic]) -> NDArray[np.generic]:
    result = np.empty(len(rare), usual_values.dtype)
    result[rare], result[~rare] = further, usual_values
    return result


def no_ids(count: int) -> NDArray[np.int32]:
    """Return -1, which means no id, for ``count`` rows."""
    return np.full(count, -1, np.int32)
