"""The answer of a memory snapshot as sentences, text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sawtooth.analysis.dumps.fragmentation import FailedAllocation
from sawtooth.analysis.dumps.held_memory import DeviceMemory, Holder
from sawtooth.analysis.dumps.stacks import ALLOCATED_BEFORE
from sawtooth.app import format as fmt
from sawtooth.app.printable import aligned
from sawtooth.app.reports.escaped import as_written, for_terminals, table

MAX_ROWS = 10  # Rows of a table.
NAME_LENGTH = 70  # Longer names are cut to this many characters.
MIN_STUCK_SHARE = 0.1  # Share of the reserved memory. Less is usual and not mentioned.
UNKNOWN = "not known"


def headline(memory: DeviceMemory) -> str:
    """Return what uses the memory at the peak, in one sentence."""
    if memory.failed:
        return failure(memory.failed[-1])
    if not memory.peak_bytes:
        return f"GPU {memory.device} uses no memory in this snapshot."
    if not memory.events:
        return (
            f"GPU {memory.device} uses {fmt.memory(memory.end_bytes)}. No history was recorded, so the peak is not known. "
            "Call torch.cuda.memory._record_memory_history() first."
        )
    first, *other_categories = memory.categories
    second = (
        f", then {other_categories[0].name} ({fmt.share(other_categories[0].size / memory.peak_bytes)})"
        if other_categories
        else ""
    )
    return f"The peak of GPU {memory.device} is {fmt.memory(memory.peak_bytes)}: {first.name} ({fmt.share(first.size / memory.peak_bytes)}){second}."


def failure(failed: FailedAllocation) -> str:
    """Return the size of a failed allocation and the size that would have fitted."""
    return f"An allocation of {fmt.memory(failed.size)} failed; at most {fmt.memory(failed.fitted_bytes)} would have fitted."


def details(memory: DeviceMemory) -> list[str]:
    """Return the lines below the headline: failures, the peak, and the cache."""
    lines = []
    for failed in memory.failed[-1:]:
        lines.append(
            f"{fmt.memory(failed.in_use_bytes)} were in use, {fmt.memory(failed.driver_free_bytes)} free on the GPU, and "
            f"{fmt.memory(failed.cached_free_bytes)} free in the cache, in pieces of at most {fmt.memory(failed.largest_free_bytes)}."
        )
        if failed.fits_joined:
            lines.append("The pieces would have sufficed if they were joined. Set PYTORCH_ALLOC_CONF=expandable_segments:True.")
        else:
            missing = fmt.memory(failed.size - failed.joined_bytes)
            lines.append(
                f"Even if the pieces were joined, {missing} would be missing. Use a smaller batch, or recompute activations (checkpointing)."
            )
        if failed.purpose.line:
            lines.append(f"{fmt.clean(failed.purpose.line, NAME_LENGTH)} requested it ({failed.purpose.category}).")
        if memory.categories:
            lines.append(f"The peak is {fmt.memory(memory.peak_bytes)}, most of it {memory.categories[0].name}.")
    cache = memory.fragmentation
    lines.append(
        f"At the end, {fmt.memory(cache.reserved_bytes)} are reserved: {fmt.memory(cache.used_bytes)} in use, {fmt.memory(cache.free_bytes)} free. "
        f"The largest free piece is {fmt.memory(cache.largest_free_bytes)}."
    )
    if cache.stuck_bytes > MIN_STUCK_SHARE * max(cache.reserved_bytes, 1):
        lines.append(
            f"{fmt.memory(cache.stuck_bytes)} of the free memory is in segments that are partly in use, so empty_cache() cannot release it."
        )
    if any(category.name == ALLOCATED_BEFORE for category in memory.categories):
        lines.append(
            "Blocks from before the recording have no stack. They are parameters, gradients, optimizer state, and other permanent data."
        )
    return lines


def tables(memory: DeviceMemory) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    """Return title and rows of each table: categories, modules, code.

    A row has name, memory, share of the peak, and number of blocks.
    """
    kinds = (("What it is for", memory.categories), ("Module", memory.modules), ("Code", memory.stacks))
    return [(title, _rows(holders, memory.peak_bytes)) for title, holders in kinds if holders]


def _rows(holders: Sequence[Holder], peak_bytes: int) -> list[tuple[str, str, str, str]]:
    named = [holder for holder in holders if holder.name]
    unknown = [holder for holder in holders if not holder.name]
    shown, remaining = named[:MAX_ROWS], named[MAX_ROWS:]
    if remaining:
        size, blocks = sum(holder.size for holder in remaining), sum(holder.blocks for holder in remaining)
        shown = [*shown, Holder(f"{len(remaining):,} others", size, blocks)]
    return [
        (
            fmt.clean(holder.name, NAME_LENGTH) or UNKNOWN,
            fmt.memory(holder.size),
            fmt.share(holder.size / peak_bytes) if peak_bytes else "",
            f"{holder.blocks:,}",
        )
        for holder in (*shown, *unknown)
    ]


HEADS = ("at the peak", "memory", "share", "blocks")


def text(memories: Sequence[DeviceMemory]) -> str:
    """Return the answer for a terminal."""
    lines: list[str] = []
    for memory in memories:
        lines += [""] if lines else []
        lines += [headline(memory), *details(memory)]
        for title, rows in tables(memory):
            lines += ["", *aligned([(title, *HEADS[1:]), *rows], "<>")]
    return for_terminals(lines)


def markdown(memories: Sequence[DeviceMemory]) -> str:
    """Return the answer as Markdown."""
    lines: list[str] = []
    for memory in memories:
        lines += [f"**{as_written(headline(memory))}**", "", *(as_written(line) for line in details(memory)), ""]
        for title, rows in tables(memory):
            lines += [*table((title, *HEADS[1:]), rows), ""]
    return "\n".join(lines)


def plain_data(memories: Sequence[DeviceMemory]) -> list[dict[str, Any]]:
    """Return the answer as plain data; sizes are bytes."""
    return [
        {
            "device": memory.device,
            "headline": headline(memory),
            "details": details(memory),
            "events": memory.events,
            "peak_bytes": memory.peak_bytes,
            "peak_at_s": memory.peak_at_s,
            "end_bytes": memory.end_bytes,
            "categories": [_holder(category) for category in memory.categories],
            "modules": [_holder(category) for category in memory.modules],
            "stacks": [_holder(category) for category in memory.stacks],
            "reserved_bytes": memory.fragmentation.reserved_bytes,
            "used_bytes": memory.fragmentation.used_bytes,
            "free_bytes": memory.fragmentation.free_bytes,
            "stuck_bytes": memory.fragmentation.stuck_bytes,
            "largest_free_bytes": memory.fragmentation.largest_free_bytes,
            "failed": [
                {
                    "asked_bytes": failed.size,
                    "fitted_bytes": failed.fitted_bytes,
                    "driver_free_bytes": failed.driver_free_bytes,
                    "cached_free_bytes": failed.cached_free_bytes,
                    "largest_free_bytes": failed.largest_free_bytes,
                    "other_streams_bytes": failed.other_streams_bytes,
                    "joined_bytes": failed.joined_bytes,
                    "fits_joined": failed.fits_joined,
                    "category": failed.purpose.category,
                    "line": failed.purpose.line,
                }
                for failed in memory.failed
            ],
            "curve": [list(point) for point in memory.curve],
        }
        for memory in memories
    ]


def _holder(holder: Holder) -> dict[str, Any]:
    return {"name": holder.name or UNKNOWN, "bytes": holder.size, "blocks": holder.blocks}
