"""Tests that all outputs state the verdict on a pair with the same words and numbers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sawtooth
from sawtooth.analysis.store.library import Library
from sawtooth.app import format as fmt
from sawtooth.app.agent.tools import Tools
from sawtooth.app.cli import cli
from sawtooth.ingest.schema import DataFolder
from tests.support.pages import opened_at, text_of
from tests.support.paths import RECORDINGS
from tests.support.prepared import prepared

PAIRS = (
    "adam_foreach gpt_small", "adam_single adam_fused", "attention_math attention_sdpa", "channels_first channels_last",
    "checkpointing_io gpt_small", "collected_garbage gpt_small", "conv_searches conv_searches_off", "copy_pageable copy_pinned",
    "copy_pinned copy_prefetched", "ddp_straggler ddp_balanced", "eval_with_grad eval_without_grad", "gpt_fp32 gpt_tf32",
    "gpt_reads gpt_no_reads", "loader_few_workers loader_workers", "loader_restarts loader_keeps_workers", "mlp_4093 mlp_4096",
    "mlp_eager mlp_graph", "reduced_after reduced_within", "small_batch gpt_small", "vocab_50257 gpt_fp32",
)  # fmt: skip
INTERVAL = re.compile(r"a step is [^.]*\d[^()]* \(95 % interval\)|nothing bounds the change")
NUMBER = re.compile(r"[\d.,]+ (?:ms|µs|s|×|%)")
DIRECTION = re.compile(r"as fast|as long|[Nn]o change larger than|[Cc]annot tell")
SHOWING_INTERVALS = ("text", "markdown", "html", "page")
TAGS = re.compile(r"<(?:style|script).*?</(?:style|script)>|<[^>]*>", re.DOTALL)


def plain(text: str) -> str:
    """Return the words of a text, without markup, escapes and line breaks."""
    return re.sub(r"\s+", " ", html.unescape(TAGS.sub(" ", text)).replace("\\", "").replace("&nbsp;", " ")).replace(" .", ".")


def files(name: str, telemetry: bool) -> Iterator[Path]:
    yield from sorted((RECORDINGS / name).glob("*.json.gz"))
    if telemetry:
        yield from sorted((RECORDINGS / name).glob("nvml*.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("telemetry", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_every_output_has_the_same_verdict(pair: str, telemetry: bool, app_data: DataFolder) -> None:
    before, after = (prepared(app_data, *files(name, telemetry), name=name) for name in pair.split())

    def printed(*options: str) -> str:
        return CliRunner().invoke(cli, ["compare", before.id, after.id, "--data", str(app_data.root), *options]).output

    contract = json.loads(printed("--json"))
    with Library(app_data) as library:
        tool = Tools(library).compare(before.id, after.id)
    notebook = sawtooth.compare(sawtooth.analyse(before.id, data=app_data.root), sawtooth.analyse(after.id, data=app_data.root))
    page = text_of(opened_at("compare", a=before.id, b=after.id))
    texts = {
        "text": printed(),
        "markdown": printed("--format", "md"),
        "html": printed("--format", "html"),
        "notebook": str(notebook),
        "notebook markdown": notebook._repr_markdown_(),
        "notebook html": notebook._repr_html_(),
        "tool": tool.headline,
    }
    headline = plain(tool.headline)
    assert {name for name, text in texts.items() if headline not in plain(text)} == set(), headline
    # The page names what was changed instead of the runs, and states its interval below.
    stated = NUMBER.findall(re.sub(r"\([^)]*\)", "", headline)) + DIRECTION.findall(headline)
    assert stated and [words for words in stated if words not in plain(page)] == [], headline

    best = contract["best_step_time_ms"]
    assert contract["verdict"] == tool.verdict == notebook.verdict and repr(notebook).endswith(f": {tool.verdict}>")
    assert (best["a"], best["b"], best["change_ms"], best["ci95_ms"]) == (
        tool.before_ms, tool.after_ms, tool.change_ms, tool.change_ci95_ms,
    )  # fmt: skip
    assert best == notebook.to_json()["best_step_time_ms"]
    if contract["throughput"] is None:
        assert {fmt.duration_ms(best[side]).replace("\u00a0", " ") for side in "ab"} <= set(
            re.findall(r"[\d,.]+ (?:ms|µs|s)\b", headline)
        )
    if tool.verdict in ("faster", "slower") and contract["throughput"] is None:
        ratio = best["a"] / best["b"]
        factor = next(number.removesuffix(" ×") for number in NUMBER.findall(headline) if number.endswith("×"))
        rounding = 0.5 * 10.0 ** -len(factor.partition(".")[2])  # A wide interval has fewer digits.
        assert abs(float(factor.replace(",", "")) - (ratio if tool.verdict == "faster" else 1 / ratio)) <= rounding * 1.001
    for interval in INTERVAL.findall(plain(tool.detail)):
        assert {
            name for name, text in (texts | {"page": page}).items() if name in SHOWING_INTERVALS and interval not in plain(text)
        } == set(), interval
