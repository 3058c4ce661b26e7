"""Ways to damage a recording's form: changed, doubled or lost units, identities, names and marks."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.incomplete.events import CALLS, Damage, Event, is_call, is_gpu, is_operator, is_step


def lose_group(key: Callable[[Event], Any], which: Callable[[Event], bool], rank: int) -> Damage:
    """Remove all events of one group, such as a thread; ``rank`` 0 is the largest group."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        sizes = Counter(key(event) for event in events if which(event))
        if not sizes:
            return events
        group = [name for name, _ in sizes.most_common()][min(rank, len(sizes) - 1)]
        return [e for e in events if not (which(e) and key(e) == group)]

    return damage


def lose_all_between(begin: float, end: float) -> Damage:
    """Remove all events that begin within a time range, including step marks."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        starts = [event["ts"] for event in events if event.get("ph") == "X"]
        first, last = min(starts), max(starts)
        return [
            e
            for e in events
            if e.get("ph") == "M" or not first + begin * (last - first) <= e.get("ts", first) < first + end * (last - first)
        ]

    return damage


def lose_kinds(*kinds: str) -> Damage:
    return lambda events, _: [e for e in events if e.get("cat") not in kinds]


def lose_flows(events: list[Event], _: random.Random) -> list[Event]:
    """Remove the arrows between events."""
    return [e for e in events if e.get("ph") not in ("s", "f", "t")]


def lose_waits(events: list[Event], _: random.Random) -> list[Event]:
    return [e for e in events if not (is_call(e) and "Synchronize" in e["name"])]


def every_time(factor: float) -> Damage:
    """Write all times in another unit."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        for event in events:
            if "ts" in event:
                event["ts"] *= factor
            if "dur" in event:
                event["dur"] *= factor
        return events

    return damage


def named_threads(events: list[Event], _: random.Random) -> list[Event]:
    """Write process and thread numbers as text."""
    for event in events:
        for key in ("pid", "tid"):
            if key in event:
                event[key] = f"{key} {event[key]}"
    return events


def one_thread(events: list[Event], _: random.Random) -> list[Event]:
    """Write all of the host's events to one thread."""
    for event in events:
        if is_call(event) or is_operator(event):
            event["tid"] = 1
    return events


def doubled(share: float, which: Callable[[Event], bool] = lambda e: True) -> Damage:
    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        return events + [json.loads(json.dumps(e)) for e in events if which(e) and chance.random() < share]

    return damage


def repeated_correlations(share: float) -> Damage:
    """Give launches and operations the correlations of others."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        numbers = [e["args"]["correlation"] for e in events if is_call(e) and "correlation" in e.get("args", {})]
        for event in events:
            if (is_gpu(event) or is_call(event)) and "correlation" in event.get("args", {}) and chance.random() < share:
                event["args"]["correlation"] = chance.choice(numbers)
        return events

    return damage


def wrapped_correlations(bits: int) -> Damage:
    """Write only the low bits of the correlations, so that numbers repeat."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        for event in events:
            if "correlation" in event.get("args", {}):
                event["args"]["correlation"] &= (1 << bits) - 1
        return events

    return damage


def merged_marks(count: int) -> Damage:
    """Join the marks of consecutive steps into one."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        marks = sorted((e for e in events if is_step(e) and e.get("cat") == "user_annotation"), key=lambda e: e["ts"])
        removed = set()
        for at in range(0, len(marks) - count + 1, count):
            first, last = marks[at], marks[at + count - 1]
            first["dur"] = last["ts"] + last["dur"] - first["ts"]
            removed |= {id(mark) for mark in marks[at + 1 : at + count]}
        return [e for e in events if id(e) not in removed]

    return damage


def merged_one_pair(events: list[Event], chance: random.Random) -> list[Event]:
    """Join the marks of two steps in the middle."""
    marks = sorted((e for e in events if is_step(e) and e.get("cat") == "user_annotation"), key=lambda e: e["ts"])
    if len(marks) < 4:
        return events
    at = len(marks) // 2
    marks[at]["dur"] = marks[at + 1]["ts"] + marks[at + 1]["dur"] - marks[at]["ts"]
    return [e for e in events if e is not marks[at + 1]]


def renamed_marks(to: Callable[[int], str]) -> Damage:
    def damage(events: list[Event], _: random.Random) -> list[Event]:
        for number, event in enumerate(sorted(filter(is_step, events), key=lambda e: e["ts"])):
            event["name"] = to(number)
        return events

    return damage


def marks_of_gpu_only(events: list[Event], _: random.Random) -> list[Event]:
    """Remove the host's step marks but not the GPU's."""
    return [e for e in events if not (is_step(e) and e.get("cat") == "user_annotation")]


def marks_of_host_only(events: list[Event], _: random.Random) -> list[Event]:
    """Remove the GPU's annotations."""
    return [e for e in events if e.get("cat") != "gpu_user_annotation"]


def unpopped(share: float) -> Damage:
    """Let the user's ranges last until the end of the recording."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        end = max(e["ts"] + e.get("dur", 0) for e in events if e.get("ph") == "X")
        for event in events:
            if event.get("cat") == "user_annotation" and chance.random() < share:
                event["dur"] = end - event["ts"]
        return events

    return damage


def lasting(us: float, share: float, which: Callable[[Event], bool]) -> Damage:
    """Give a share of some events one duration."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        for event in events:
            if which(event) and chance.random() < share:
                event["dur"] = us
        return events

    return damage


def with_another_process(share: float) -> Damage:
    """Add kernels of another process, on another stream and without launches."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        others = []
        for event in events:
            if event.get("cat") == "kernel" and chance.random() < share:
                other = json.loads(json.dumps(event))
                other["args"] = {k: v for k, v in other["args"].items() if k in ("device", "grid", "block", "stream")}
                other["args"]["stream"] = other["tid"] = 9_999
                other["ts"] += event.get("dur", 0) * 1.5
                others.append(other)
        return events + others

    return damage


def other_device(share: float) -> Damage:
    """Change the device number of some operations."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        for event in events:
            if is_gpu(event) and chance.random() < share:
                event["pid"] = event["args"]["device"] = 5
        return events

    return damage


def shuffled(events: list[Event], chance: random.Random) -> list[Event]:
    chance.shuffle(events)
    return events


def times_as_text(events: list[Event], _: random.Random) -> list[Event]:
    for event in events:
        for key in ("ts", "dur"):
            if key in event:
                event[key] = str(event[key])
    return events


def zeroed_times(share: float) -> Damage:
    """Write 0 for the times of the last events, as pytorch#188481 does."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        timed = [e for e in events if e.get("ph") == "X"]
        for event in timed[int(len(timed) * (1 - share)) :]:
            event["ts"] = event["dur"] = 0
        return events

    return damage


MISSHAPEN: dict[str, Damage] = {
    **{f"lose the operators of thread {rank + 1}": lose_group(lambda e: e.get("tid"), is_operator, rank) for rank in range(2)},
    **{f"lose the calls of thread {rank + 1}": lose_group(lambda e: e.get("tid"), is_call, rank) for rank in range(2)},
    **{f"lose everything of thread {rank + 1}": lose_group(lambda e: (e.get("pid"), e.get("tid")), lambda e: e.get("ph") == "X" and not is_gpu(e), rank) for rank in range(2)},
    **{f"lose stream {rank + 1}": lose_group(lambda e: e["args"].get("stream"), is_gpu, rank) for rank in range(2)},
    "lose a device": lose_group(lambda e: e["args"].get("device"), is_gpu, 1),
    **{f"lose everything from {a:.0%} to {b:.0%}": lose_all_between(a, b) for a, b in ((0, 0.3), (0.4, 0.6), (0.45, 0.5), (0.8, 2))},
    "lose the calls of the runtime and driver": lose_kinds(*CALLS),
    "lose Python's calls": lose_kinds("python_function"),
    "lose all annotations": lose_kinds("user_annotation", "gpu_user_annotation"),
    "lose the arrows": lose_flows,
    "lose the waits": lose_waits,
    "write all times in ns": every_time(1000),
    "write all times in ms": every_time(0.001),
    "write all times in s": every_time(0.000001),
    "write threads as words": named_threads,
    "write one thread": one_thread,
    **{f"write {share:.0%} of all events twice": doubled(share) for share in (0.3, 1.0)},
    "write operators twice": doubled(1.0, is_operator),
    "write calls twice": doubled(1.0, is_call),
    "write marks twice": doubled(1.0, is_step),
    **{f"repeat {share:.0%} of correlations": repeated_correlations(share) for share in (0.02, 0.3)},
    **{f"keep {bits} bits of correlations": wrapped_correlations(bits) for bits in (8, 11)},
    **{f"join the marks of {count} steps": merged_marks(count) for count in (2, 3)},
    "join the marks of two steps": merged_one_pair,
    "give all marks one number": renamed_marks(lambda number: "ProfilerStep#0"),
    "name marks as a user does": renamed_marks(lambda number: f"iteration {number}"),
    "give all marks one name": renamed_marks(lambda number: "train"),
    "lose the host's marks": marks_of_gpu_only,
    "lose the GPU's marks": marks_of_host_only,
    **{f"never end {share:.0%} of the user's ranges": unpopped(share) for share in (0.2, 1.0)},
    **{f"let {share:.0%} of kernels last {us} µs": lasting(us, share, lambda e: e.get("cat") == "kernel") for us, share in ((0, 0.1), (0, 0.5), (-1, 0.1), (-100, 0.3))},
    "let half of the calls last 0 µs": lasting(0, 0.5, is_call),
    "let a tenth of the operators last -5 µs": lasting(-5, 0.1, is_operator),
    **{f"add {share:.0%} kernels of another process": with_another_process(share) for share in (0.1, 1.0)},
    **{f"write {share:.0%} of operations to another device": other_device(share) for share in (0.1, 0.5)},
    "shuffle the events": shuffled,
    "write times as text": times_as_text,
    **{f"write 0 for the last {share:.0%} of times": zeroed_times(share) for share in (0.02, 0.5)},
}  # fmt: skip
