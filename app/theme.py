"""The colours of owners and causes: one class has one colour on every screen, in the report and in both themes.

Lost time is warm, useful time is blue, what is nobody's fault is grey (Okabe–Ito family). Never a colour without a word beside it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Colour:
    """A class's name for people and its colours on a light and on a dark page. ``hatched`` classes also carry a pattern."""

    label: str
    light: str
    dark: str
    hatched: bool = False

    def on(self, dark: bool) -> str:
        """Return the hex colour for the page's theme."""
        return self.dark if dark else self.light


OWNERS: dict[str, Colour] = {
    "tensor_core_compute": Colour("tensor-core compute", "#0072B2", "#4AA3DF"),
    "other_compute": Colour("other compute", "#56B4E9", "#9AD1F5"),
    "memset": Colour("memset", "#9A9A9A", "#8C8C8C"),
    "exposed_comm": Colour("exposed communication", "#CC79A7", "#E3A5C7"),
    "exposed_memcpy": Colour("exposed copy", "#E69F00", "#F2C14E"),
    "idle": Colour("idle", "#B5B5B5", "#6E6E6E"),
}

CAUSES: dict[str, Colour] = {
    "data_wait": Colour("data loader", "#D55E00", "#FF8A3D"),
    "host_sync": Colour("host synchronization", "#B2182B", "#EF6A6A"),
    "blocking_copy": Colour("blocking copy", "#E69F00", "#F2C14E"),
    "allocator": Colour("allocator", "#7B5EA7", "#B39DDB"),
    "compilation": Colour("compilation", "#5B4A8A", "#9A8BC9"),
    "launch_bound": Colour("kernel launches", "#A6611A", "#D8A25E"),
    "python_host": Colour("Python on the host", "#8C6D31", "#CBB26A"),
    "comm_wait": Colour("waiting for another rank or stream", "#CC79A7", "#E3A5C7"),
    "comm_transfer": Colour("communication transfer", "#B5608F", "#D98DB8"),
    "launch_latency": Colour("launch latency", "#7F7F7F", "#A6A6A6"),
    "profiler": Colour("the profiler itself", "#A0A0A0", "#7C7C7C", hatched=True),
    "unattributed": Colour("not attributed", "#C4C4C4", "#5E5E5E"),
}

UNKNOWN = Colour("unknown", "#BDBDBD", "#666666")
ACCENT = Colour("accent", "#0072B2", "#4AA3DF")
MUTED = Colour("muted text", "#5F6670", "#A3A7AD")


def colour_of(owner: str, cause: str | None = None) -> Colour:
    """Return the colour of a ledger row: its cause's where it has one, else its owner's."""
    if cause is not None:
        return CAUSES.get(cause, UNKNOWN)
    return OWNERS.get(owner, UNKNOWN)
