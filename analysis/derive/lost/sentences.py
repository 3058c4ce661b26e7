"""Evidence for a piece of lost time as one sentence: the template of its cause with values."""

from __future__ import annotations

from functools import cache, lru_cache
from string import Formatter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import categorical
from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import HostFacts
from sawtooth.analysis.derive.lost.schedule import Schedule
from sawtooth.analysis.knowledge.causes import CAUSE_KEYS, CAUSE_OF
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.simulation import I64
from sawtooth.analysis.units import in_words

MAX_SENTENCES = 20_000  # Only the longest pieces get a sentence, because a million sentences would take seconds.
DURATIONS = ("took", "lead", "waited")  # Fields of sentences that are durations in nanoseconds.
# Cache size. Most durations occur again, also in other ranks, and formatting one takes half of a sentence's time.
DIFFERENT_DURATIONS = 1 << 15
NAME_LENGTH = 80  # Longest name in characters, because names of template kernels can be kilobytes long.
MAX_SIGNATURE_CHARACTERS = 40  # Longest signature in characters that fits into a sentence.


@lru_cache(DIFFERENT_DURATIONS)
def _duration(ns: float) -> str:
    return in_words(ns / 1e6)


def _fillable(template: str) -> tuple[str, list[str]]:
    """Return ``template`` with ``%s`` for each field, and the names of the fields."""
    parts = list(Formatter().parse(template))
    text = "".join(words.replace("%", "%%") + ("%s" if key else "") for words, key, _, _ in parts)
    return (text if any(key for _, key, _, _ in parts) else template), [key for _, key, _, _ in parts if key]


def readable(name: str) -> str:
    """Return a name for a sentence.

    A long C++ signature is shortened to the function, without namespaces and arguments.
    """
    text = name
    if len(name) > MAX_SIGNATURE_CHARACTERS and "::" in name and "<" in name:
        words = name.replace("(anonymous namespace)::", "").partition("<")[0].split()
        text = words[-1].rsplit("::", 1)[-1] or name if words else name
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"


def sentences(
    events: TraceEvents, facts: HostFacts, schedule: Schedule, table: pd.DataFrame, limit: int = MAX_SENTENCES
) -> pd.Categorical:
    """Return the evidence for each of the longest ``limit`` pieces, in words; None for the others."""
    names, ops, calls, gpu = events.names, events.ops, events.calls, events.gpu
    length = (table["end"] - table["start"]).to_numpy()
    rows = np.sort(np.argsort(-length, kind="stable")[:limit])
    table = table.iloc[rows]
    next_op, op, call, frame = (
        table[c].to_numpy(np.int64) for c in ("next_gpu_op_id", "cpu_op_id", "call_id", "python_call_id")
    )

    @cache
    def short(name_id: int) -> str:
        return readable(names[name_id])

    def texts(name_ids: NDArray[np.int32], index: I64, missing: str) -> list[str]:
        ids = np.where(index >= 0, name_ids[index], -1).tolist() if len(name_ids) else [-1] * len(index)
        return [short(i) if i >= 0 else missing for i in ids]

    submitted = schedule.submitted[next_op] if len(schedule.submitted) else np.zeros(len(rows), np.int64)
    lead = np.where(next_op >= 0, table["start"].to_numpy() - submitted, 0).clip(0)
    waited = dict(zip(schedule.waits.call.tolist(), (schedule.waits.reached - schedule.waits.start).tolist(), strict=True))
    called = texts(calls.name, call, "a call")
    columns = {
        "kernel": texts(gpu.name, next_op, "the end of the window"),
        "call": called,
        "doing": [doing or own_name for doing, own_name in zip(texts(ops.name, op, ""), called, strict=True)],
        "where": [f" at {place}" if place else "" for place in texts(facts.python_name, frame, "")],
        "took": length[rows].tolist(),
        "lead": lead.tolist(),
        "waited": [waited.get(c, 0) for c in call.tolist()],
    }

    numbers: dict[str, int] = {}  # Index of each sentence.
    of_piece = np.full(len(length), -1, np.int32)
    owners, causes = (table[column].cat.codes.to_numpy(np.int64) for column in ("owner", "cause"))
    pairs = owners * len(CAUSE_KEYS) + causes
    for pair in np.unique(pairs).tolist():  # Formatting all rows of a template together takes a tenth of the time.
        owner, cause = divmod(pair, len(CAUSE_KEYS))
        template, keys = _fillable(CAUSE_OF[CAUSE_KEYS[cause]].evidence[OWNER_KEYS[owner]])
        pieces = np.flatnonzero(pairs == pair)
        values = ([columns[key][piece] for piece in pieces.tolist()] for key in keys)
        texts_of_keys = [
            map(_duration, of_key) if key in DURATIONS else of_key for key, of_key in zip(keys, values, strict=True)
        ]
        filled = [template % row for row in zip(*texts_of_keys, strict=True)] if keys else [template] * len(pieces)
        of_piece[rows[pieces]] = [numbers.setdefault(sentence, len(numbers)) for sentence in filled]
    return categorical(of_piece, list(numbers))
