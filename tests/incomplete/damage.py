"""Ways to make a recording incomplete: dropped records and arguments, shifted clocks, cut files.

Names are changed too. A damage takes the events of a trace and a random generator, and returns the remaining events.
Cuts take the text of the file.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable

from tests.incomplete.events import Damage, Event, is_call, is_copy, is_gpu, is_operator, is_step
from tests.incomplete.misshapen import MISSHAPEN


def places(events: Iterable[Event]) -> Callable[[Event], float]:
    """Return a function that gives an event's position in the GPU's time, from 0 to 1."""
    starts = [event["ts"] for event in events if is_gpu(event)]
    first, last = min(starts), max(starts)
    return lambda event: (event["ts"] - first) / max(last - first, 1e-9)


def lose(share: float, which: Callable[[Event], bool] = is_gpu) -> Damage:
    return lambda events, chance: [e for e in events if not which(e) or chance.random() >= share]


def lose_between(begin: float, end: float, which: Callable[[Event], bool] = is_gpu) -> Damage:
    def damage(events: list[Event], _: random.Random) -> list[Event]:
        place = places(events)
        return [e for e in events if not which(e) or not begin <= place(e) < end]

    return damage


def lose_kernels_by_name(rank: int) -> Damage:
    """Remove all operations of the name with the most GPU time, or the next most."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        time: Counter[str] = Counter()
        for event in filter(is_gpu, events):
            time[event["name"]] += event.get("dur", 0)
        name = [name for name, _ in time.most_common()][min(rank, len(time) - 1)]
        return [e for e in events if not (is_gpu(e) and e["name"] == name)]

    return damage


def lose_every(nth: int) -> Damage:
    def damage(events: list[Event], _: random.Random) -> list[Event]:
        number = {id(e): i for i, e in enumerate(filter(is_gpu, events))}
        return [e for e in events if id(e) not in number or number[id(e)] % nth]

    return damage


def lose_last_of_steps(events: list[Event], chance: random.Random) -> list[Event]:
    """Remove the last operations of each thirtieth of the time, as buffers that overflow do."""
    place = places(events)
    return [e for e in events if not is_gpu(e) or (place(e) * 30) % 1 < 0.6]


def without(argument: str, share: float, which: Callable[[Event], bool] = lambda e: True) -> Damage:
    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        for event in events:
            if which(event) and argument in event.get("args", {}) and chance.random() < share:
                del event["args"][argument]
        return events

    return damage


def renamed(to: Callable[[str], str], which: Callable[[Event], bool] = is_gpu) -> Damage:
    def damage(events: list[Event], _: random.Random) -> list[Event]:
        for event in filter(which, events):
            event["name"] = to(event["name"])
        return events

    return damage


def shifted(us: float, which: Callable[[Event], bool] = is_gpu, since: float = 0.0) -> Damage:
    """Shift the clock of some events, from some time of the GPU on."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        place = places(events)
        moved = [event for event in events if which(event) and place(event) >= since]
        for event in moved:
            event["ts"] += us
        return events

    return damage


def longer(share: float, by_us: float) -> Damage:
    """Make the durations of a share of the kernels too long."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        for event in events:
            if event.get("cat") == "kernel" and chance.random() < share:
                event["dur"] += by_us
        return events

    return damage


def scaled(factor: float, which: Callable[[Event], bool] = is_gpu) -> Damage:
    """Scale durations, as a wrong unit does."""

    def damage(events: list[Event], _: random.Random) -> list[Event]:
        for event in filter(which, events):
            event["dur"] = event.get("dur", 0) * factor
        return events

    return damage


def twice(share: float) -> Damage:
    """Record operations of the GPU a second time, as two profilers would."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        again = [json.loads(json.dumps(e)) for e in events if is_gpu(e) and chance.random() < share]
        return events + again

    return damage


def lose_launch_and_record(share: float) -> Damage:
    """Remove launches together with the operations that they launched."""

    def damage(events: list[Event], chance: random.Random) -> list[Event]:
        lost = {
            e["args"]["correlation"]
            for e in events
            if is_call(e) and "correlation" in e.get("args", {}) and chance.random() < share
        }
        return [e for e in events if not ((is_call(e) or is_gpu(e)) and e.get("args", {}).get("correlation") in lost)]

    return damage


DAMAGES: dict[str, Damage] = {
    **{f"lose {share:.1%} of the GPU's records": lose(share) for share in (0.005, 0.02, 0.1, 0.3, 0.5, 0.8)},
    **{f"lose the GPU's records from {a:.0%} to {b:.0%}": lose_between(a, b) for a, b in ((0, 0.2), (0, 0.5), (0.2, 0.5), (0.3, 0.7), (0.6, 2), (0.9, 2))},
    **{f"lose the kernels of name {rank + 1}": lose_kernels_by_name(rank) for rank in range(5)},
    **{f"lose every {nth}. operation": lose_every(nth) for nth in (2, 3, 7, 50)},
    "lose the last of every part": lose_last_of_steps,
    "lose all GPU records": lose(1.0),
    "lose all copies": lose(1.0, is_copy),
    "lose half of the copies": lose(0.5, is_copy),
    **{f"lose {share:.0%} of the calls": lose(share, is_call) for share in (0.02, 0.1, 0.5, 1.0)},
    **{f"lose {share:.0%} of the operators": lose(share, is_operator) for share in (0.1, 0.5, 1.0)},
    **{f"lose {share:.0%} of launches and records": lose_launch_and_record(share) for share in (0.02, 0.2, 0.5)},
    "lose half of the steps' marks": lose(0.5, is_step),
    "lose all marks of steps": lose(1.0, is_step),
    **{f"remove {share:.0%} of correlations": without("correlation", share, is_gpu) for share in (0.02, 0.1, 0.5, 1.0)},
    "remove all shapes": without("Input Dims", 1.0),
    "remove half of the shapes": without("Input Dims", 0.5),
    "remove all dtypes": without("Input type", 1.0),
    "remove streams": without("stream", 1.0, is_gpu),
    "remove External ids": without("External id", 1.0),
    "remove graph ids": without("graph node id", 1.0),
    "give every kernel one name": renamed(lambda name: "kernel", lambda e: e.get("cat") == "kernel"),
    "cut names of kernels": renamed(lambda name: name[:12], lambda e: e.get("cat") == "kernel"),
    "name every kernel as Triton does": renamed(lambda name: f"triton_tem_fused_{len(name)}", lambda e: e.get("cat") == "kernel"),
    "name copies without direction": renamed(lambda name: "Memcpy", is_copy),
    **{f"shift the GPU's clock by {us:+} µs": shifted(us) for us in (-5000, -300, -20, 300, 20_000)},
    "let the GPU's clock jump": shifted(15_000, since=0.5),
    **{f"make {share:.0%} of kernels {us} µs longer": longer(share, us) for share, us in ((0.02, 5000), (0.1, 500), (0.3, 100))},
    "write the GPU's durations in ns": scaled(1000),
    "write the GPU's durations in ms": scaled(0.001),
    "record the GPU twice": twice(1.0),
    "record a third of the GPU twice": twice(0.34),
    **MISSHAPEN,
}  # fmt: skip
CUTS = (0.3, 0.5, 0.7, 0.9, 0.97)  # Share of the file's text that remains.


def damaged(text: bytes, name: str, seed: int) -> bytes:
    """Return a trace's text with one damage. Raises KeyError for an unknown damage."""
    if name.startswith("cut to "):
        return text[: int(len(text) * float(name.split()[2].rstrip("%")) / 100)]
    trace = json.loads(text)
    trace["traceEvents"] = DAMAGES[name](trace["traceEvents"], random.Random(seed))
    return json.dumps(trace).encode()


def every_damage() -> list[str]:
    return [*DAMAGES, *(f"cut to {share:.0%}" for share in CUTS)]
