"""Traces that are valid but unusual, made by changing the events of an intact one."""

from __future__ import annotations

import gzip
from itertools import cycle
from typing import Any

from tests.support import sound_trace


def changed(**changes: Any) -> bytes:
    """Return the intact trace with every event changed.

    The name of an argument is a category of events, or ``each`` for all events. Its value is a function that takes the number
    and a copy of an event, and returns its replacement: an event, several events, or None.
    """
    events = []
    for number, event in enumerate(sound_trace.sound_events(6)):
        for kind, change_event in changes.items():
            if isinstance(event, dict) and (kind == "each" or event.get("cat") == kind):
                event = change_event(number, dict(event, args=dict(event.get("args", {}))))
        events += event if isinstance(event, list) else [event] if event else []
    return sound_trace.text(sound_trace.sound(events))


def with_arguments(**arguments: Any):
    return lambda _, event: {**event, "args": {**event["args"], **arguments}}


def with_names(names: list[str]):
    """Return a change that gives events these names in turn."""
    turn = cycle(names)
    return lambda _, event: {**event, "name": next(turn)}


def without_arguments(*keys: str):
    return lambda _, event: {**event, "args": {k: v for k, v in event["args"].items() if k not in keys}}


def with_growing_delay(by: float):
    """Return a change that moves each event by ``by`` µs more than the event before."""
    return lambda number, event: {**event, "ts": event["ts"] + by * number} if event["ph"] == "X" else event


ONE_KERNEL = sound_trace.event("kernel", "k", 190.0, 3000.0, 0, 9, correlation=900, device=0, stream=9)
ODD_NAMES = [
    "void k<1>()",
    "",
    " ",
    "a" * 5000,
    "名前",
    "\u202e",
    "k" + chr(0),
    "%s%n",
    "'; DROP TABLE names; --",
    "=1+1",
    "nan",
]
# Unusual traces that must be read, by what is unusual about them.
READABLE_DOCUMENTS: dict[str, bytes] = {
    "no steps": changed(user_annotation=lambda *_: None),
    "one step": sound_trace.text(sound_trace.sound(sound_trace.sound_events(1))),
    "two steps": sound_trace.text(sound_trace.sound(sound_trace.sound_events(2))),
    "one kernel": sound_trace.text(sound_trace.sound([ONE_KERNEL])),
    "one operator": sound_trace.text(sound_trace.sound([sound_trace.event()])),
    "kernels of one stream overlap": changed(kernel=lambda n, e: [e, {**e, "ts": e["ts"] + 5, "dur": 60.0}]),
    "the same kernel at the same time on two streams": changed(kernel=lambda n, e: [e, {**e, "tid": 8, "args": {**e["args"], "stream": 8}}]),
    "all events start together": changed(each=lambda n, e: {**e, "ts": 500.0}),
    "last event first": sound_trace.text(sound_trace.sound(sound_trace.sound_events(6)[::-1])),
    "no correlation": changed(kernel=without_arguments("correlation"), cuda_runtime=without_arguments("correlation"), gpu_memcpy=without_arguments("correlation")),
    "one correlation for all": changed(kernel=with_arguments(correlation=7), cuda_runtime=with_arguments(correlation=7)),
    "negative correlation": changed(kernel=with_arguments(correlation=-5), cuda_runtime=with_arguments(correlation=-5)),
    "correlation 0": changed(kernel=with_arguments(correlation=0), cuda_runtime=with_arguments(correlation=0)),
    "negative threads": changed(each=lambda n, e: {**e, "pid": -1, "tid": -(n % 3)}),
    "huge threads": changed(each=lambda n, e: {**e, "tid": 2**62 + n % 3}),
    "schemaVersion 99": sound_trace.text(sound_trace.sound(schemaVersion=99)),
    "schemaVersion text": sound_trace.text(sound_trace.sound(schemaVersion="new")),
    "a list of events": sound_trace.text(sound_trace.sound_events(6)),
    "AMD": changed(cuda_runtime=lambda n, e: {**e, "cat": "hip_runtime", "name": "hipLaunchKernel"}),
    "XPU": changed(cuda_runtime=lambda n, e: {**e, "cat": "xpu_runtime", "name": "urEnqueueKernelLaunch"}),
    "capitals of 2020": changed(each=lambda n, e: {**e, "cat": {"kernel": "Kernel", "cpu_op": "Operator", "cuda_runtime": "Runtime"}.get(e.get("cat"), e.get("cat"))}),
    "kernels of no length": changed(kernel=lambda n, e: {**e, "dur": 0}),
    **{f"kernels called {part[0][:12]!r} and otherwise": changed(kernel=with_names(part)) for part in (ODD_NAMES[:6], ODD_NAMES[6:])},
}  # fmt: skip
# Traces that may be read or refused, by what is odd about them.
ODD_DOCUMENTS: dict[str, bytes] = {
    "host only": changed(kernel=lambda *_: None, gpu_memcpy=lambda *_: None),
    "GPU only": changed(cpu_op=lambda *_: None, cuda_runtime=lambda *_: None, user_annotation=lambda *_: None, python_function=lambda *_: None),
    "steps overlap": changed(user_annotation=lambda n, e: {**e, "dur": 1500.0}),
    "steps inside steps": changed(user_annotation=lambda n, e: [e, {**e, "name": "ProfilerStep#99", "ts": e["ts"] + 100, "dur": 100.0}]),
    "steps of no length": changed(user_annotation=lambda n, e: {**e, "dur": 0}),
    "one number for all steps": changed(user_annotation=lambda n, e: {**e, "name": "ProfilerStep#1"}),
    "a step number of many digits": changed(user_annotation=lambda n, e: {**e, "name": "ProfilerStep#" + "9" * 60}),
    "steps without a number": changed(user_annotation=lambda n, e: {**e, "name": "ProfilerStep"}),
    "steps run backwards": changed(user_annotation=lambda n, e: {**e, "name": f"ProfilerStep#{100 - n}"}),
    "sixteen GPUs": changed(kernel=lambda n, e: [{**e, "pid": d, "args": {**e["args"], "device": d}} for d in range(16)]),
    "device -1": changed(kernel=with_arguments(device=-1), gpu_memcpy=with_arguments(device=-1)),
    "a MIG name for a device": changed(kernel=with_arguments(device="MIG-1c2d"), gpu_memcpy=with_arguments(device="MIG-1c2d")),
    "a rank beyond the world": sound_trace.text(sound_trace.sound(distributedInfo={"backend": "nccl", "rank": 9, "world_size": 2})),
    "distributedInfo of odd types": sound_trace.text(sound_trace.sound(distributedInfo=["x"], deviceProperties={"a": 1})),
    "a rank of odd type": sound_trace.text(sound_trace.sound(distributedInfo={"rank": "one", "world_size": -1, "backend": None, "pg_config": 5})),
    "no base": sound_trace.text({k: v for k, v in sound_trace.sound(sound_trace.sound_events(6)).items() if k != "baseTimeNanoseconds"}),
    "a base of odd type": sound_trace.text(sound_trace.sound(baseTimeNanoseconds="soon")),
    "a negative base": sound_trace.text(sound_trace.sound(baseTimeNanoseconds=-(10**18))),
    "a base beyond 64 bits": sound_trace.text(sound_trace.sound(baseTimeNanoseconds=10**30)),
    "the clock steps back an hour": changed(each=lambda n, e: {**e, "ts": e["ts"] - 3.6e9} if n > 30 else e),
    "times below zero": changed(each=lambda n, e: {**e, "ts": e["ts"] - 1e6}),
    "an event of 5 MB": sound_trace.with_event(sound_trace.kernel(args=b'{"correlation": 900, "x": "' + b"a" * (5 << 20) + b'"}')),
    "ten thousand equal events": gzip.compress(changed(cpu_op=lambda n, e: [e] * 1000)),
    "kernels of a week": changed(kernel=lambda n, e: {**e, "dur": 6.9 * 86_400e6}),
    "shapes of odd types": changed(cpu_op=with_arguments(**{"Input Dims": [[-1, 0], ["x"], None, [[2**40]], 5], "Input type": [1, None], "Concrete Inputs": {}})),
    "shapes beyond 64 bits": changed(cpu_op=with_arguments(**{"Input Dims": [[2**62, 2**62], [2**62, 2**62]], "Input type": ["float", "float"]})),
    "kernels with odd sizes": changed(kernel=with_arguments(grid=[-1, 0, 2**40], block=[0, 0, 0], **{"registers per thread": -5, "blocks per SM": "NaN", "est. achieved occupancy %": 1e9})),
    "copies of negative size": changed(gpu_memcpy=with_arguments(bytes=-1, **{"memory bandwidth (GB/s)": "x"})),
    "operators inside out": changed(cpu_op=with_growing_delay(37.0)),
    "a launch after its kernel": changed(cuda_runtime=lambda n, e: {**e, "ts": e["ts"] + 400}),
}  # fmt: skip
