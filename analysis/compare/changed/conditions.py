"""Conditions of two runs side by side: command, machine, versions, work of a step, and set-up.

They are shown before any attribution, so that a reader sees what else differs besides the change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.compare.changed.arguments import PROGRAM
from sawtooth.analysis.compare.changed.differences import SetupDifference
from sawtooth.analysis.compare.changed.setup_traits import Trait
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.telemetry.attribution import machine_of
from sawtooth.ingest.loop.command import program_of

HOST_DIGITS = 6  # Hexadecimal digits that distinguish the hosts of a comparison.
MAX_CLOCK_DIFFERENCE = 0.03  # Share. Boost clocks of one GPU vary by 1 to 2 % with temperature.
# Traits that are conditions. The section "What was changed" lists the other traits.
OF_TRAITS = ("dtype", "compile", "loader", "gradient_sync")
LAYOUTS = {"dp": "data", "tp": "tensor", "pp": "pipeline", "ep": "expert", "cp": "context"}
# What a reader needs to know before trusting a comparison: key and name, in the table's order.
EXPECTED = {
    "program": "command", "gpu": "GPU", "clock": "clocks", "power_limit": "power limit", "driver": "driver", "torch": "PyTorch version",
    "runtime": "CUDA version", "host": "host", "world_size": "world size", "batch": "batch size", "length": "sequence length",
    "dtype": "precision", "layout": "parallel layout", "micro_batches": "micro-batches", "compile": "torch.compile", "loader": "loader",
    "variables_recorded": "environment variables",
}  # fmt: skip
OF_SEVERAL_GPUS = ("layout", "micro_batches")  # One GPU has neither.
SET_UP_KEY = "set_up"  # Key under which the recorder writes versions and variables into a trace.
ENVIRONMENT = "variables_recorded"  # Key of a condition that only a trace with recorded variables has.
_INPUTS = """SELECT s.input_dims, count(*) AS calls FROM cpu_ops o JOIN signatures s USING (signature_id)
    WHERE o.name_id IN (SELECT unnest(?::INTEGER[])) AND s.input_dims IS NOT NULL GROUP BY ALL ORDER BY calls DESC"""


@dataclass(frozen=True)
class Condition:
    """One condition of a run: its name ``what`` and its ``value`` in words.

    Numbers that differ by at most the share ``within`` count as equal. ``kind`` is the value without its number. If the
    number of one side is not known, values of the same kind count as equal.
    """

    key: str
    what: str
    value: str
    number: float | None = None
    within: float = 0.0
    kind: str = ""

    def differs_from(self, other: Condition) -> bool:
        """Return whether the values differ by more than usual."""
        if self.kind and self.kind == other.kind and None in (self.number, other.number):
            return False
        if self.number and other.number:
            return max(self.number, other.number) / min(self.number, other.number) - 1 > max(self.within, other.within)
        return self.value != other.value


@dataclass(frozen=True)
class ConditionPair:
    """One condition on both sides, as text; None if a side does not record it.

    ``differs`` is False if a side is not known. If both sides record environment variables, a missing variable counts as "not set".
    """

    key: str
    what: str
    a: str | None
    b: str | None
    differs: bool


def conditions_of(
    run: RunResult, library: Library, traits: Sequence[Trait], recording: Recording | None
) -> tuple[Condition, ...]:
    """Return the known conditions of a run in order. ``recording`` is its lead trace, or None."""
    set_up = _set_up(recording)
    return (
        *_command(run),
        *_machine(run, library),
        *_versions(run, set_up),
        *_work(run, recording),
        *_layout(run),
        *(Condition(t.key, t.what, t.value, t.amount, kind=t.kind) for t in traits if t.key in OF_TRAITS),
        *(Condition(f"variable {name}", name, text) for name, text in (set_up.get("environment") or {}).items()),
    )


def condition_pairs(
    a: Sequence[Condition], b: Sequence[Condition], arguments: Sequence[SetupDifference] = ()
) -> tuple[ConditionPair, ...]:
    """Return the changed ``arguments``, then every condition that a side records, in order.

    An environment variable differs if one side has it and the other side, which records variables, does not.
    """
    conditions_a, conditions_b = ({condition.key: condition for condition in side} for side in (a, b))
    typed = [
        ConditionPair(condition_pair.key, condition_pair.what, condition_pair.a, condition_pair.b, differs=True)
        for condition_pair in arguments
        if condition_pair.key != PROGRAM
    ]
    keys = [*conditions_a, *(key for key in conditions_b if key not in conditions_a)]
    recorded = ENVIRONMENT in conditions_a and ENVIRONMENT in conditions_b
    return (*typed, *(_pair(conditions_a.get(key), conditions_b.get(key), recorded=recorded) for key in keys))


def _pair(a: Condition | None, b: Condition | None, *, recorded: bool) -> ConditionPair:
    condition = a or b
    assert condition is not None
    of_environment = condition.key.startswith("variable ") and recorded
    absent = "not set" if of_environment else None
    differs = a.differs_from(b) if a is not None and b is not None else of_environment
    return ConditionPair(condition.key, condition.what, a.value if a else absent, b.value if b else absent, differs)


def shared_conditions(sides: Sequence[Sequence[Condition]]) -> tuple[Condition, ...]:
    """Return the conditions that all runs of one side record; values that differ are listed together."""
    joined = []
    for condition in sides[0]:
        of_other_sides = [next((candidate for candidate in side if candidate.key == condition.key), None) for side in sides[1:]]
        if any(other is None for other in of_other_sides):
            continue
        values = list(
            dict.fromkeys(
                [condition.value, *(other.value for other in of_other_sides if other and condition.differs_from(other))]
            )
        )
        joined.append(condition if len(values) == 1 else Condition(condition.key, condition.what, "; ".join(values)))
    return tuple(joined)


def _command(run: RunResult) -> Iterator[Condition]:
    command = run.manifest.recorded_command
    if command:
        yield Condition("program", "Program", program_of(command))


def _machine(run: RunResult, library: Library) -> Iterator[Condition]:
    lead, sampled = run.lead, run.telemetry.busiest
    if lead is not None and lead.telemetry is not None:
        sampled = lead.telemetry
    gpu = lead.device_name if lead is not None else sampled.name if sampled is not None else None
    if gpu:
        yield Condition("gpu", "GPU", gpu)
    if sampled is not None and (mhz := sampled.means.get("clock_sm_mhz")):
        yield Condition("clock", "SM clock, mean", f"{mhz:,.0f} MHz", mhz, MAX_CLOCK_DIFFERENCE)
    if sampled is not None:
        yield Condition("power_capped", "Power cap lowers the clock", "yes" if sampled.capped else "no")
        yield from _of_telemetry(library, sampled.recording_id, sampled.device)
    hosts = [lead.host if lead is not None else None, sampled.host if sampled is not None else None]
    hosts += [ref.host for ref in run.manifest.recordings]
    if host := next(filter(None, hosts), None):
        # Reports are sent to others, so they distinguish hosts without naming them.
        yield Condition("host", "Host", f"host {_digits(host)}")
    if machine := machine_of(run.manifest, library):  # Machines of one cluster may share a host name.
        yield Condition("machine", "Machine, until its restart", f"machine {_digits(machine)}")


def _digits(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:HOST_DIGITS]


def _of_telemetry(library: Library, recording_id: str, device: int) -> Iterator[Condition]:
    """Yield the driver and the power limit that telemetry recorded for a device."""
    with library.open(recording_id, derived=False) as recording:
        drivers = recording.rows("SELECT driver FROM devices WHERE device = ? AND driver IS NOT NULL", [device])
        (metadata,) = recording.rows("SELECT metadata FROM recording")[0]
    for (driver,) in drivers[:1]:
        yield Condition("driver", "Driver", driver)
    gpus = _decode(metadata).get("gpus")
    for gpu in gpus if isinstance(gpus, list) else ():
        if isinstance(gpu, dict) and gpu.get("gpu") == device and isinstance(watts := gpu.get("power_limit_w"), int | float):
            yield Condition("power_limit", "Power limit", f"{watts:,.0f} W", float(watts))


def _versions(run: RunResult, set_up: dict[str, Any]) -> Iterator[Condition]:
    trace = run.lead.trace if run.lead is not None else None
    torch = trace.torch_version if trace is not None else None
    if torch or set_up.get("torch"):
        yield Condition("torch", "PyTorch", str(torch or set_up["torch"]))
    runtime = set_up.get("runtime") or (trace.runtime_version if trace is not None else None)
    if runtime:
        yield Condition("runtime", "CUDA or HIP", _version(str(runtime)))
    if "environment" in set_up:
        yield Condition(ENVIRONMENT, "Environment variables", "recorded")


def _version(text: str) -> str:
    """Return CUDA's version number 13010 as 13.1; other texts unchanged."""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}" if text.isdigit() and int(text) >= 1000 else text


def _work(run: RunResult, recording: Recording | None) -> Iterator[Condition]:
    facts = run.manifest.facts
    batch, length = _inputs(recording) if recording is not None else (None, None)
    if facts.samples_per_step:
        yield Condition("samples", "Samples per step", f"{facts.samples_per_step:,.12g}", facts.samples_per_step)
    if batch:
        yield Condition("batch", "Batch size of the inputs", f"{batch:,.12g}", batch)
    elif facts.loader_batch:  # Shapes of matrix products do not show which dimension is the batch.
        yield Condition("batch", "Batch size of the loader", f"{facts.loader_batch:,.12g}", facts.loader_batch)
    if facts.tokens_per_step:
        yield Condition("tokens", "Tokens per step", f"{facts.tokens_per_step:,.12g}", facts.tokens_per_step)
    if length:
        yield Condition("length", "Sequence length", f"{length:,}", float(length))


def _inputs(recording: Recording) -> tuple[float | None, int | None]:
    """Return the batch size and the sequence length that the recorded shapes show.

    The indices of an embedding have both, and the input of a convolution has the batch size. Each is None if no shape shows it.
    """
    tokens = [dims[1] for dims in _shapes(recording, "^aten::embedding$") if len(dims) > 1 and len(dims[1] or ()) == 2]
    if tokens:
        batch, length = max(tokens, key=math.prod)
        return float(batch), int(length)
    images = [dims[0] for dims in _shapes(recording, "^aten::convolution$") if dims and len(dims[0] or ()) >= 3]
    return (float(images[0][0]), None) if images else (None, None)


def _shapes(recording: Recording, pattern: str) -> list[list[list[int]]]:
    names = recording.named(pattern)
    shapes = [json.loads(text) for text, _ in (recording.rows(_INPUTS, [names]) if names else ())]
    return [dims for dims in shapes if isinstance(dims, list)]


def _layout(run: RunResult) -> Iterator[Condition]:
    if run.gpus:
        yield Condition("world_size", "World size", f"{run.gpus:,}", float(run.gpus))
    communication = run.communication
    if communication is None:
        return
    sizes = {LAYOUTS[use.parallelism]: use.group_size for use in communication.groups if use.parallelism is not None}
    if sizes:
        yield Condition(
            "layout", "Parallel layout", ", ".join(f"{kind} × {sizes[kind]}" for kind in LAYOUTS.values() if kind in sizes)
        )
    if (schedule := communication.schedule) is not None:
        count = schedule.microbatches
        yield Condition("micro_batches", "Micro-batches of the pipeline", f"{count:,}", float(count))


def _set_up(recording: Recording | None) -> dict[str, Any]:
    """Return what the recorder noted about the process in the trace; {} for a trace of another tool."""
    metadata = recording.rows("SELECT metadata FROM recording")[0][0] if recording is not None else None
    fields = _decode(metadata).get(SET_UP_KEY)
    return fields if isinstance(fields, dict) else {}


def _decode(text: str | None) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        value = json.loads(text or "{}")
        return value if isinstance(value, dict) else {}
    return {}
