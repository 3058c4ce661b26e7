"""Tests of changes that only a pair of traces shows: no_sync, micro-batches, LSTM, padded sizes."""

from __future__ import annotations

from functools import cache, partial

import pytest

from sawtooth.analysis.compare.changed.resized import resized_layers
from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.report import compare_json
from sawtooth.app.words.comparisons import setup_changes as words
from tests.support.anti_patterns import loop, op
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import library, result_of
from tests.support.sampled_loop import HAND_MADE


def layer(trace: ChromeTrace, at: float) -> float:
    """Add a step of nn.LSTM: one operator of cuDNN, whose products are TF32."""
    start = at
    at = op(
        trace, at, "aten::_cudnn_rnn", [[32, 16, 64], [4096]], kernel="sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", kernel_us=30
    )
    trace.op("aten::lstm", start - 0.2, at - 0.2)
    return at


HAND_MADE.setdefault("lstm_layer", partial(loop, add=layer))


@cache
def side(name: str) -> Side:
    return side_of([result_of(name)], library())


def values(comparison: Comparison, what: str) -> tuple[str, str]:
    return next((a, b) for named, a, b, _ in words.rows(comparison) if named == what)


NAMED = {
    ("accumulated_and_reduced", "accumulated_without_sync"): "Gradients are reduced",
    ("pipeline_of_two_microbatches", "pipeline_of_eight_microbatches"): "Micro-batches of the pipeline",
    ("lstm_cells", "lstm_layer"): "Recurrent layers",
    ("mlp_4093", "mlp_4096"): "Sizes of layers (padding)",
    ("vocab_50257", "vocab_50304"): "Sizes of layers (padding)",
    ("adam_single", "adam_fused"): "Optimizer",
}
FIRST = {
    "Gradients are reduced": ("after each of 4 micro-batches", "after the last of 4 micro-batches"),
    "Micro-batches of the pipeline": ("2", "8"),
    "Recurrent layers": ("one LSTMCell per time step", "nn.LSTM"),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("pair", "what"), NAMED.items(), ids=lambda value: "-".join(value) if isinstance(value, tuple) else "")
def test_the_change_is_named_both_ways(pair: tuple[str, str], what: str) -> None:
    a, b = (side(name) for name in pair)
    there, back = compare(a, b), compare(b, a)
    assert not there.other_model
    assert values(back, what) == values(there, what)[::-1]
    if what in FIRST:
        assert values(there, what) == FIRST[what]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "pair",
    [("loader_few_workers", "loader_workers"), ("ddp_straggler", "ddp_balanced"), ("mlp_4093", "mlp_4096"), ("gpt_reads", "gpt_no_reads")],
    ids="-".join,
)  # fmt: skip
def test_parts_and_changes_sum_to_the_verdict_s_difference_and_mirror(pair: tuple[str, str]) -> None:
    there, back = compare(*map(side, pair)), compare(*map(side, reversed(pair)))
    assert sum(row.change_ms for row in there.waterfall_run) == pytest.approx(there.best.change_ms)
    explained = [
        [(sorted(d.key for d in e.differences), None if e.share is None else round(e.share, 9)) for e in found.effects]
        for found in (there, back)
    ]
    assert sorted(explained[0], key=str) == sorted(explained[1], key=str)
    assert sum(share or 0.0 for _, share in explained[0]) <= 1 + 1e-9
    rows, mirrored = ({(r["owner"], r["cause"]): r for r in compare_json(found)["waterfall_run"]} for found in (there, back))
    assert {key: (row["change_ms"], row["resolved"]) for key, row in rows.items()} == {
        key: (-row["change_ms"], row["resolved"]) for key, row in mirrored.items()
    }


def shapes(width: int, tokens: int = 4096) -> set[str]:
    """Return the shapes of a transformer's products (attention, MLP, head) by width and tokens."""
    pairs = [(tokens, width), (width, width), (width, 4 * width), (tokens, 4 * width), (width, 3 * width), (tokens, 3 * width)]
    return {",".join(map(str, sorted(pair))) for pair in [*pairs, (50304, width), (tokens, 50304)]}


def test_a_padded_width_is_still_the_same_model() -> None:
    assert resized_layers(shapes(774), shapes(768)) == {774: 768, 2322: 2304, 3096: 3072}
    assert resized_layers(shapes(768), shapes(774)) == {768: 774, 2304: 2322, 3072: 3096}
    assert resized_layers(shapes(768), shapes(1024)) == {} and resized_layers(shapes(768), shapes(768)) == {}
    assert resized_layers(shapes(768, 4096), shapes(768, 8192)) == {}  # another batch
