"""Readable names of kernels, and the durations of a kernel's launches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from string import ascii_letters

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, with_layout
from sawtooth.app.theme import ACCENT

MAX_INTEGER_TICKS = 6  # Launches. Plotly labels an axis with fewer launches in fractions, so each integer gets a tick.
NAME_LENGTH = 36  # Characters of a name that fit next to a bar at 800 px. Hover text and table have the full name.


_FUNCTOR = re.compile(r"(\w*(?:[Ff]unctor|_kernel_cuda|KernelImpl|_kernel_impl|OpMath|Op|Ops)(?:_\w+)?)\b(?!::)")
# Functors that only pass their arguments to another functor, which says what the kernel does.
_WRAPPERS = ("gpu_kernel_impl", "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "ReduceOp")
# Generic names in CUTLASS and CK, whose first template argument says what the kernel does.
_GENERIC = ("Kernel", "Kernel2", "kernel", "device_kernel", "run")
# The word for a kernel's work. It remains visible when the middle of a name is cut out.
_WORK = re.compile(
    r"[a-z0-9]*(?:gemm|[dw]grad|[fb]prop|sdpa|fmha|flash|attention|softmax|norm|reduce|scan|sort)[a-z0-9]*", re.IGNORECASE
)
# Shorter words for a kernel's work, for a small tile. "add" and "mul" are also parts of longer words.
_KIND = re.compile(
    r"[dw]grad|[fb]prop|gemm|attention|flash|fmha|sdpa|softmax|norm|reduce|pool|copy|scan|sort|(?<![a-z])(?:add|mul|fill)(?![a-z])",
    re.IGNORECASE,
)
_RECOGNIZED = 6  # Characters. A shorter part of a name cannot be recognized.
_WORD = re.compile(r"[A-Za-z0-9]+")
_BETWEEN = "_:. -<>,()"  # Characters between the words of a name. A cut name does not end with them.
_IDENTIFIER = re.compile(r"[A-Za-z_][\w:]{5,}")


def short_name(name: str, length: int = NAME_LENGTH) -> str:
    """Return a short distinctive name, such as "vectorized_elementwise_kernel · AddFunctor".

    Namespaces and template arguments are removed first. The functor of an elementwise kernel remains, because it says what the
    kernel does.
    """
    text = fmt.clean(name)
    if len(text) <= length:
        return text
    text = text.removeprefix("void ").replace("(anonymous namespace)::", "")
    base, _, arguments = text.partition("<")
    base = base.split("(", 1)[0].rsplit("::", 1)[-1].strip() or text
    if base in _GENERIC and (identifier := _IDENTIFIER.search(arguments)):
        return middle(identifier.group(0).rsplit("::", 1)[-1], length)
    functors = [name for name in _FUNCTOR.findall(arguments) if name != base]
    if functors:
        functor = next((name for name in functors if not name.startswith(_WRAPPERS)), functors[0])
        room = length - len(functor) - 3
        base = f"{_start(base, room)} · {functor}" if room >= _RECOGNIZED else functor
    return middle(base, length)


def work_of(name: str) -> str:
    """Return the first word in a name that says what a kernel does, such as "dgrad"; "" without one."""
    word = _KIND.search(name)
    return word[0].lower() if word else ""


def distinct_names(names: Sequence[str], length: int = NAME_LENGTH) -> list[str]:
    """Return a different short name for each kernel.

    Equal short names get the words in which the full names differ as their ending. If this is too long, they are numbered.
    """
    short_names = {name: short_name(name, length) for name in names}
    times = Counter(short_names.values())
    by_start: dict[str, dict[str, list[str]]] = {}
    for name, text in short_names.items():
        if times[text] > 1:  # The ending needs room. Group the names by their shorter start.
            by_start.setdefault(short_name(name, length // 3), {})[name] = _WORD.findall(fmt.clean(name))
    for equal_names in by_start.values():
        endings = {
            name: middle(" ".join(words), length - length // 3 - 3)
            for name, words in _distinguishing_words(equal_names).items()
            if words
        }
        short_names |= {name: f"{short_name(name, length - len(ending) - 3)} · {ending}" for name, ending in endings.items()}
    seen: Counter[str] = Counter()
    for name, text in short_names.items():
        seen[text] += 1
        if seen[text] > 1:
            number = f" ({seen[text]})"
            short_names[name] = f"{middle(text, length - len(number))}{number}"
    return [short_names[name] for name in names]


def _distinguishing_words(words: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return for each name the words in which it differs from all others, as few as possible."""
    if len(words) < 2:
        return {name: [] for name in words}
    columns = zip(*words.values(), strict=False)
    common_words = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    first: dict[str, dict[str, Sequence[str]]] = {}
    for name, own in words.items():
        first.setdefault(own[common_words] if common_words < len(own) else "", {})[name] = own[common_words + 1 :]
    if len(first) == 1:  # These names differ only in punctuation.
        return {name: [] for name in words}
    shared = _shared_letters([word for word in first if word])
    return {
        name: [word[shared:], *further_words] if word else further_words
        for word, rest in first.items()
        for name, further_words in _distinguishing_words(rest).items()
    }


def _shared_letters(words: Sequence[str]) -> int:
    """Return how many letters all words begin with, such as 8 of "tilesize64" and "tilesize128"."""
    starts = {word[: len(word) - len(word.lstrip(ascii_letters))] for word in words}
    start = starts.pop()
    return len(start) if not starts and len(words) > 1 and all(len(word) > len(start) for word in words) else 0


def _start(name: str, length: int) -> str:
    """Return the first words of a name, with "…" if more follow; "_kernel" at the end is not needed."""
    text = name if len(name) <= length else name.removesuffix("_kernel")
    return text if len(text) <= length else f"{_first_words(text, length - 1)}…"


def _first_words(text: str, length: int) -> str:
    """Return the words at the start of ``text`` that fit, or the first letters of a long first word."""
    ends = [word.end() for word in _WORD.finditer(text) if word.end() <= length]
    return text[: ends[-1]] if ends else text[:length]


def _last_words(text: str, length: int) -> str:
    """Return the words at the end of ``text`` that fit, or the last letters of a long last word."""
    starts = [word.start() for word in _WORD.finditer(text) if len(text) - word.start() <= length]
    return text[starts[0] :] if starts else text[len(text) - length :] if length > 0 else ""


def middle(name: str, length: int) -> str:
    """Return a name with its middle cut out, between words where possible.

    Names of kernels of one family have the same beginning, but differ in tile and layout at the end. A word for the work (such as ``s16816gemm``)
    remains between both ends.
    """
    text = fmt.clean(name)
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    head, last = length - 1 - tail, len(text) - tail
    work = _WORK.search(text)
    room = length - 2 - len(work[0]) if work else 0
    if work is None or work.end() <= head or work.start() >= last or room < 2 * _RECOGNIZED:
        start = _first_words(text, length - 1 - len(_last_words(text, tail)))
        return f"{start}…{_last_words(text[len(start) + 1 :], length - 1 - len(start))}"
    start = _first_words(text[: work.start()].rstrip(_BETWEEN), room // 3)
    return f"{start}…{work[0]}…{_last_words(text[work.end() :].lstrip(_BETWEEN), room - len(start))}"


def histogram(rows: pd.DataFrame, title: str, alt: str, *, dark: bool) -> Chart:
    """Draw a histogram; rows have low_us, high_us and launches."""
    edges = rows[["low_us", "high_us"]].astype(float)
    widths = edges["high_us"] - edges["low_us"]
    ratios = bool(len(rows)) and widths.iloc[-1] > 1.5 * widths.iloc[0]  # Bins have equal ratios, not equal widths.
    positions = np.log10(edges) if ratios else edges
    figure = go.Figure(
        go.Bar(
            x=positions.mean(axis=1),
            width=positions["high_us"] - positions["low_us"],
            y=rows["launches"],
            marker={"color": ACCENT.on(dark), "line": {"width": 0}},
            customdata=[
                f"{fmt.duration_ns(a * 1e3)} to {fmt.duration_ns(b * 1e3)}: {fmt.count(n)} launches"
                for a, b, n in zip(rows["low_us"], rows["high_us"], rows["launches"], strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    with_layout(figure, 240)
    figure.update_xaxes(title={"text": "duration of one launch, µs"}, zeroline=False)
    if ratios:
        low, high = int(np.floor(positions["low_us"].iloc[0])), int(np.ceil(positions["high_us"].iloc[-1]))
        powers = range(low, high + 1)
        figure.update_xaxes(tickvals=list(powers), ticktext=[f"{10.0**power:,g}" for power in powers], range=[low, high])
    tick_options = {"dtick": 1} if len(rows) and rows["launches"].max() < MAX_INTEGER_TICKS else {}
    figure.update_yaxes(title={"text": "launches"}, rangemode="tozero", **tick_options)
    columns = {"low_us": "From, µs", "high_us": "To, µs", "launches": "Launches"}
    return Chart(figure=figure, title=title, alt=alt, table=rows, columns=columns)
