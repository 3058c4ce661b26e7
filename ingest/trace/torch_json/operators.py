"""The arguments of operators as columns. Nearly all have the same few arguments, and their inputs repeat: these are told apart by their text alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from sawtooth.ingest.decode import integers
from sawtooth.ingest.trace.spool import Columns
from sawtooth.ingest.trace.torch_json.arguments import EXTRA, EXTRA_MARK, CollectiveArgs, Number, OpArgs, ShapeArgs
from sawtooth.ingest.trace.torch_json.decoding import collectives, decoded, object_of, text_of
from sawtooth.ingest.trace.torch_json.interning import Canonical
from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS, Event

DISTINCT_SIGNATURES = 300_000  # scalars that change with every step make new ones for ever; beyond this they are not recorded
DISTINCT_EXTRAS = 200_000  # likewise for call stacks
MOST_RARE = 64  # names of operators with further arguments: collectives and compiled kernels come to some ten
BEGIN, BEHIND = b'"Concrete Inputs"', b', "Ev Idx"'  # what begins the inputs in what kineto writes, and what follows them
REPLACED = b'"inputs cut out": 1, "Ev Idx"'  # stands in their place


class UsualArgs(OpArgs, forbid_unknown_fields=True, gc=False):
    """All arguments of a usual operator, its inputs cut out."""

    record: Number = field(name="Record function id", default=None)
    index: Number = field(name="Ev Idx", default=None)
    cut: Number = field(name="inputs cut out", default=None)


class UsualInputs(ShapeArgs, forbid_unknown_fields=True, gc=False):
    """The inputs that were cut out."""


USUAL, INPUTS = msgspec.json.Decoder(list[UsualArgs]), msgspec.json.Decoder(UsualInputs)


class Inputs(dict[bytes, int]):
    """Ids of signatures by the text of the inputs. Raises one of DECODE_ERRORS for a text that holds anything else."""

    def __init__(self, signatures: Canonical) -> None:
        self._signatures = signatures

    def __missing__(self, text: bytes) -> int:
        value = self._signatures[_signature(INPUTS.decode(b"{%b%b}" % (BEGIN, text)))]
        if len(self) < DISTINCT_SIGNATURES and value >= 0:
            self[text] = value
        return value


class OperatorArguments:
    """Makes columns of the arguments of operators and annotations, a group of events at a time."""

    def __init__(self, notes: Counter[str]) -> None:
        self.signatures = Canonical(list, DISTINCT_SIGNATURES, notes)
        self.extras = Canonical(dict, DISTINCT_EXTRAS, notes)
        self._inputs = Inputs(self.signatures)
        self._rare: set[int] = set()  # ids of the names whose operators have further arguments

    def columns(self, events: list[Event], names: NDArray[np.int32], calls: list[CollectiveArgs]) -> Columns:
        """Return the columns of ``events``, whose names have the ids ``names``; the arguments of collectives are appended to ``calls``."""
        if len(self._rare) > MOST_RARE:
            return self._any(events, calls)
        rare = np.isin(names, list(self._rare))
        usual = self._usual(list(compress(events, (~rare).tolist())) if rare.any() else events)
        if usual is None:
            self._rare.update(name for name, event in zip(names.tolist(), events, strict=True) if not self._is_usual(event))
            return self._any(events, calls)
        if not rare.any():
            return usual
        further = self._any(list(compress(events, rare.tolist())), calls)
        return {key: _merged(rare, further[key], values) for key, values in usual.items()}

    def _usual(self, events: list[Event]) -> Columns | None:
        """Return the columns where all events have the usual arguments alone, with their inputs where kineto puts them; else None."""
        try:
            inputs, text = self._without_inputs(text_of(events))
            args = USUAL.decode(text)
        except DECODE_ERRORS:
            return None
        signature = no_ids(len(events))
        if inputs:
            rows = [row for row, a in enumerate(args) if a.cut is not None]
            if len(rows) != len(inputs):
                return None
            signature[rows] = inputs
        return _ids(args) | {"signature_id": signature, "extra": no_ids(len(events)), "collective": no_ids(len(events))}

    def _is_usual(self, event: Event) -> bool:
        try:
            USUAL.decode(self._without_inputs(text_of([event]))[1])
        except DECODE_ERRORS:
            return False
        return True

    def _without_inputs(self, text: bytes) -> tuple[list[int], bytes]:
        """Return the signatures of the inputs in ``text``, and the text with a mark in their place. Raises one of DECODE_ERRORS."""
        first, *others = text.split(BEGIN)
        parts = [other.partition(BEHIND) for other in others]
        return list(map(self._inputs.__getitem__, [inputs for inputs, _, _ in parts])), REPLACED.join(
            [first, *[rest for _, _, rest in parts]]
        )

    def _any(self, events: list[Event], calls: list[CollectiveArgs]) -> Columns:
        """Return the columns of events with any arguments."""
        text, none = text_of(events), no_ids(len(events))
        signature, extra = none, none
        if b'"Input' in text or b'"Concrete' in text:
            keys = map(_signature, decoded(events, ShapeArgs, text))
            signature = np.fromiter(map(self.signatures.__getitem__, keys), np.int32, len(events))
        if EXTRA_MARK.search(text):
            extra = np.fromiter(map(self._extra, events), np.int32, len(events))
        columns = {"signature_id": signature, "extra": extra, "collective": collectives(events, text, calls)}
        return _ids(decoded(events, OpArgs, text)) | columns

    def _extra(self, event: Event) -> int:
        if not EXTRA_MARK.search(event.args):
            return -1
        args = object_of(event.args)
        return self.extras[(msgspec.json.encode({k: args[k] for k in EXTRA if args.get(k) not in (None, "", [])}),)]


def _signature(args: ShapeArgs) -> tuple[bytes, ...]:
    return bytes(args.dims or args.dims_2021), bytes(args.types), bytes(args.strides), bytes(args.concrete)


def _ids(args: Sequence[OpArgs]) -> Columns:
    return {
        "external_id": integers([a.external for a in args]),
        "sequence_number": integers([a.sequence for a in args]),
        "forward_thread": integers([a.forward for a in args]),
    }


def _merged(rare: NDArray[np.bool_], further: NDArray[np.generic], usual: NDArray[np.generic]) -> NDArray[np.generic]:
    result = np.empty(len(rare), usual.dtype)
    result[rare], result[~rare] = further, usual
    return result


def no_ids(count: int) -> NDArray[np.int32]:
    """Return the ids of rows that have none."""
    return np.full(count, -1, np.int32)
