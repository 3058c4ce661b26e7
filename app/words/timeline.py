"""Texts of the timeline about a slice, a piece of lost time, and a range of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sawtooth.analysis.knowledge.frames import is_user_line
from sawtooth.analysis.knowledge.lost_time import is_explained
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.tables.timeline import TimelineSpan, ViewSums
from sawtooth.analysis.tables.timeline_details import Details
from sawtooth.app import format as fmt
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words.advice import first, numbered
from sawtooth.app.words.headline import action

MAX_TEXT = 1200  # Characters of shapes and arguments that are shown.
HOST_AHEAD = "Steps are drawn at the time when the GPU runs them. The host launches a step earlier, so on the host's lanes a step begins earlier than here."
Facts = list[tuple[str, str]]


def slice_facts(details: Details) -> Facts:
    """Return the facts about a slice besides its times, the most useful first."""
    row = details.row
    facts = _step_fact(row)
    if row.get("category"):
        tensor = {"yes": "uses tensor cores", "likely": "probably uses tensor cores", "no": "no tensor cores"}
        facts.append(("Class", ", ".join(w for w in (str(row["category"]), tensor.get(str(row["tensor_cores"]))) if w)))
    facts += _roof(details)
    if row.get("bytes"):
        rate = f", {fmt.bytes_(row['bytes'] / row['dur'] * 1e9)}/s" if row["dur"] else ""
        facts.append(("Moved", f"{fmt.bytes_(row['bytes'])}{rate}"))
    if row.get("operator"):
        facts.append(("Operator", str(row["operator"])))
    for key, label in (("input_dims", "Shapes"), ("input_types", "Types"), ("concrete_inputs", "Arguments")):
        if any(c not in '[],"' for c in row.get(key) or ""):
            facts.append((label, fmt.clean(str(row[key]), MAX_TEXT)))
    if row.get("grid_x") is not None:
        grid, block = ("×".join(str(row[f"{what}_{axis}"]) for axis in "xyz") for what in ("grid", "block"))
        facts.append(("Grid × block", f"{grid} blocks of {block} threads"))
    if row.get("blocks_per_sm") is not None:
        facts.append(("Blocks per SM", fmt.number(row["blocks_per_sm"])))
    if row.get("occupancy_pct"):
        facts.append(("Occupancy, estimated", f"{fmt.number(row['occupancy_pct'])} %"))
    if row.get("registers_per_thread"):
        facts.append(("Registers per thread", str(row["registers_per_thread"])))
    if row.get("graph_id") is not None:
        facts.append(("CUDA graph", str(row["graph_id"])))
    if row.get("gpu_ops"):
        facts.append(("Launched", fmt.many(row["gpu_ops"], "GPU operation")))
    return [*facts, ("Full name", fmt.clean(str(row["name"]), MAX_TEXT))]


def _step_fact(row: Mapping[str, Any]) -> Facts:
    """Return the step of a slice or a piece of lost time, and its share of the step.

    It is empty outside of steps.
    """
    if not row.get("step"):
        return []
    share = f", {fmt.share(row['dur'] / row['step_ns'])} of it" if row["step_ns"] else ""
    return [("Step", f"{row['step']}{share}")]


def _roof(details: Details) -> Facts:
    """Return the achieved rate relative to the roofline; empty if it is not known."""
    roof = details.roof
    if roof is None or not roof.get("time_ns"):
        return []
    facts: Facts = []
    if roof.get("achieved_tflops") and roof.get("attainable_tflops"):
        share = fmt.share(roof["achieved_tflops"] / roof["attainable_tflops"])
        facts.append(
            (
                "Achieved",
                f"{fmt.flop_rate(roof['achieved_tflops'])} of {fmt.flop_rate(roof['attainable_tflops'])} attainable ({share}), all calls of its operator",
            )
        )
    elif roof.get("attained_share"):
        facts.append(
            ("Achieved", f"{fmt.share(min(roof['attained_share'], 1.0))} of the memory's rate, all calls of its operator")
        )
    return facts


def stack(frames: list[str]) -> list[dict[str, Any]]:
    """Return the stack's frames, innermost first, with the user's own innermost line at the top."""
    rows = [{"name": fmt.clean(name, 300), "yours": is_user_line(name)} for name in frames]
    first = next((row for row in rows if row["yours"]), None)
    return [first, *(row for row in rows if row is not first)] if first else rows


class MostLost(NamedTuple):
    """The main cause of a range's lost time, and a remark on its time; "" without a remark."""

    sentence: str
    remark: str


def most_lost(
    facts: ViewSums, in_view: TimelineSpan, counted: Sequence[TimelineSpan], names: Mapping[str, str]
) -> MostLost | None:
    """Return the main cause of a range's lost time; None without causes.

    Only the ``counted`` steps have causes, so the remark names them if the range is longer. ``names`` are the names that the first
    change gives to causes.
    """
    sums: dict[tuple[str, str | None], list[float]] = {}  # By owner and cause: ms, and ms of transfers.
    owners: dict[str, str] = {}
    for owner, cause, ms in facts.lost:
        owner_of_cause = owners.setdefault(cause, owner) if is_explained(cause) else owner
        sum_of_cause = sums.setdefault((owner_of_cause, cause), [0.0, 0.0])
        sum_of_cause[0] += ms
        sum_of_cause[1] += ms if owner != "idle" else 0.0
    if not sums:
        return None
    (owner, cause), (ms, transfer_ms) = max(sums.items(), key=lambda item: item[1][0])
    if cause is None and owner == "idle":
        return None
    steps = [step for step in counted if step.start_ns < in_view.end_ns and step.end_ns > in_view.start_ns]
    is_longer = steps and (in_view.start_ns < steps[0].start_ns or in_view.end_ns > steps[-1].end_ns)
    where = f" in {fmt.many(len(steps), 'counted step')}" if is_longer else ""
    meanwhile = cause_words.transfer_suffix(owner, cause, ms, transfer_ms)
    lost = fmt.duration_ms(ms)
    remark = f"{lost} lost{where}{meanwhile}" if where or meanwhile else ""
    return MostLost(f"{names.get(cause or '') or cause_words.loses_to(owner, cause)}: {lost}", remark)


def gap(row: dict[str, Any], result: RunResult, origin_ns: int) -> dict[str, Any]:
    """Return the details of a piece of lost time: title, evidence, and the finding that removes it.

    Without such a finding, there is general advice. The row's times are ns after ``origin_ns``.
    """
    facts = _step_fact(row)
    for key, label in (
        ("phase", "Phase"),
        ("operator", "Host was in"),
        ("call", "Runtime call"),
        ("next_operation", "Ended by"),
        ("confidence", "Confidence"),
    ):
        if row.get(key):
            facts.append((label, fmt.clean(str(row[key]), 300)))
    start_ns = row["start"] + origin_ns
    # If a copy ends a wait, one finding explains the wait and the copy.
    end_ns = max(row["start"] + row["dur"], row["next_start"] or 0) + origin_ns
    gaining = [finding for _, finding in numbered(result) if finding.gain_ms > 0]
    finding = next((finding for finding in gaining if finding.accounts_for(row["cause"], start_ns, end_ns)), None)
    change = first(result)
    if change is not None and change[1] is not finding:
        facts.append(("First change", f"{action(change[1])}, which shortens other time"))
    return {
        "title": f"{fmt.duration_ns(row['dur'])} lost to {cause_words.loses_to(row['owner'], row['cause'])}",
        "facts": facts,
        "evidence": row["evidence"],
        "to_do": cause_words.helps(row["owner"], row["cause"], row.get("phase")) if finding is None else None,
        "finding": {"rule": finding.rule, "title": finding.title, "gain": gain(finding), "fix": finding.fix}
        if finding
        else None,
    }


def gain(finding: Finding) -> str:
    """Return the gain of ``finding`` alone in a few words; "" if it claims no gain."""
    if finding.pays_later:
        return ""
    if finding.claims == "gain" and finding.predicted_step_ms is not None:
        return f"{fmt.step_change(finding.predicted_step_ms + finding.gain_ms, finding.predicted_step_ms)} per step"
    if finding.claims == "ceiling" and finding.ceiling_ms_per_step is not None:
        return f"saves at most {fmt.duration_ms(finding.ceiling_ms_per_step)} per step"
    return ""
