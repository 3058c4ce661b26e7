"""Tests of the checklist: the rules of every technique and the status of each.

An unknown status is never shown as fine.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from sawtooth.analysis.findings.checking import all_rules
from sawtooth.analysis.findings.checklist import TECHNIQUES, checklist
from tests.support.findings_of import library, result_of


@cache
def of(name):
    result = result_of(name)
    with library().open(result.lead.recording_id) as recording:
        return {row.technique.title: row for row in checklist(result, recording)}


def test_techniques_name_existing_rules_and_valid_patterns():
    known = {rule.slug for rule in all_rules()}
    for technique in TECHNIQUES:
        assert set(technique.rules) <= known, technique.title
        assert technique.rules or technique.why_not_shown, f"{technique.title} looks at nothing"
        for pattern in (technique.done, technique.needs):
            assert pattern is None or re.compile(pattern)
    assert len({technique.title for technique in TECHNIQUES}) == len(TECHNIQUES)


def test_gain_of_a_technique_is_that_of_its_finding():
    rows, result = of("gpt_fp32"), result_of("gpt_fp32")
    row = rows["Mixed precision"]
    finding = next(finding for finding in result.findings if finding.rule == "fp32-products")
    assert (row.status, row.rule, row.sentence) == ("gains", "fp32-products", finding.title)
    assert row.gain_ms == pytest.approx(result.lead.best.ms - finding.predicted_step_ms)


@pytest.mark.parametrize(
    ("name", "technique", "status"),
    [
        ("gpt_small", "Mixed precision", "done"),
        ("gpt_small", "channels_last for convolutions", "not applicable"),
        ("gpt_small", "Communication that overlaps with computation", "not applicable"),
        ("adam_fused", "Fused optimizer", "done"),
        ("adam_single", "Fused optimizer", "gains"),
        ("attention_sdpa", "Fused attention", "done"),
        ("channels_last", "Fused attention", "not applicable"),
        ("channels_last", "channels_last for convolutions", "done"),
        ("channels_first", "channels_last for convolutions", "gains"),
        ("mlp_graph", "CUDA graphs for many short kernels", "done"),
        ("loader_workers", "A data loader that keeps up", "done"),
        ("loader_inline", "A data loader that keeps up", "gains"),
        ("gpt_fp32", "FP8 products", "not applicable"),
        ("channels_last", "No bias before a batch norm", "nothing"),
        ("gpt_small", "No bias before a batch norm", "not applicable"),
        ("gpt_compiled", "Products chosen by timing them (max-autotune)", "nothing"),
        ("autotuned_products", "Products chosen by timing them (max-autotune)", "done"),
        ("slow_compiled_products", "Products chosen by timing them (max-autotune)", "gains"),
        ("gpt_small", "Products chosen by timing them (max-autotune)", "not applicable"),
        ("scripted_functions", "torch.compile instead of torch.jit", "found"),
        ("link_full", "A link to the host that is not saturated", "gains"),
        ("reduced_after", "Communication that overlaps with computation", "gains"),
        ("gpt_small", "Parameters that are all used (find_unused_parameters off)", "not applicable"),
        ("ddp_balanced", "Parameters that are all used (find_unused_parameters off)", "nothing"),
        ("searches_unused_parameters", "Parameters that are all used (find_unused_parameters off)", "found"),
        ("gpt_small", "Garbage collection out of the step", "not checked"),
        ("gpt_small", "No more workers than cores, no swap", "not checked"),
        ("gpt_small", "Processes bound to the GPU's cores (NUMA)", "not checked"),
        ("gpt_small", "No graph in evaluation", "not checked"),  # A profile of training steps contains no evaluation.
        ("gpt_small", "Checkpoints out of the loop", "not checked"),  # A profile of a few steps rarely contains one.
        ("gpt_small", "No allocation in the step", "not checked"),  # Growth from step to step needs the recorded allocations.
        ("trained_above", "No gradients for parameters that are not trained", "gains"),
        ("all_trained", "No gradients for parameters that are not trained", "nothing"),
        ("zeros_copied", "No gradients for parameters that are not trained", "not applicable"),
        ("gpt_small", "Debugging off (anomaly detection)", "nothing"),  # Every backward pass would show it.
    ],
)
def test_every_status_of_a_technique_occurs(name, technique, status):
    row = of(name)[technique]
    assert row.status == status, row
    assert row.sentence


def test_every_rule_has_its_technique():
    named = {rule for technique in TECHNIQUES for rule in technique.rules}
    assert {rule.slug for rule in all_rules()} == named


def test_a_technique_without_targets_in_the_trace_names_them():
    assert all(technique.works_on for technique in TECHNIQUES if technique.needs)
    assert of("gpt_small")["channels_last for convolutions"].sentence == "the trace has no convolutions"
    assert "looked for TF32 off and found none" in of("gpt_small")["TF32 where FP32 is needed"].sentence
    looked = of("channels_last")["No bias before a batch norm"].sentence
    assert looked.startswith("the trace has aten::") and "looked for bias before norm and found none" in looked


def test_a_technique_in_use_names_its_evidence_and_the_unchecked_parts():
    row = of("gpt_compiled")["Fused optimizer"]
    assert row.sentence.startswith("the trace has ") and "_fused_adamw" in row.sentence


def test_layouts_converted_by_cudnn_are_not_channels_last():
    # If the conversions are too short for a finding, the kernels between them still have nhwc in their names.
    result = result_of("channels_first")
    result = replace(result, findings=[finding for finding in result.findings if finding.rule != "layout-conversions"])
    with library().open(result.lead.recording_id) as recording:
        rows = {row.technique.title: row for row in checklist(result, recording)}
    row = rows["channels_last for convolutions"]
    assert row.status == "nothing"
    # The targets exist, and their time is stated.
    assert re.match(r"nchwToNhwcKernel takes [\d.]+ [mµ]s of each step; with few channels", row.sentence)


def test_an_unknown_technique_says_what_to_record():
    unseen = [row for row in of("gpt_small").values() if row.status == "not checked" and row.technique.why_not_shown is None]
    assert unseen
    for row in unseen:
        assert "`" in row.sentence or "profile an evaluation" in row.sentence, row


def test_a_rule_belongs_to_one_technique():
    rules = [rule for technique in TECHNIQUES for rule in technique.rules]
    assert len(rules) == len(set(rules))
    graphs = next(technique for technique in TECHNIQUES if technique.title.startswith("CUDA graphs"))
    assert set(graphs.rules) == {"launch-bound", "graph-capture"}  # The rules whose cost a graph removes.


def test_a_technique_has_an_entry_for_each_of_its_findings():
    # Compiling the model and compiling the loss are two changes of one technique, and each has its gain.
    result = result_of("adam_single")
    other = next(finding for finding in result.findings if finding.rule == "optimizer-not-fused")
    second = replace(other, rule="optimizer-share", title="less", predicted_speedup=1.01)
    result = replace(result, findings=[*result.findings, second])
    with library().open(result.lead.recording_id) as recording:
        rows = [row for row in checklist(result, recording) if "optimizer-not-fused" in row.technique.rules]
    assert [(row.finding, row.gain_ms) for row in rows] == [(other, other.gain_ms), (second, second.gain_ms)]
