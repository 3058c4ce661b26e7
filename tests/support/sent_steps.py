"""Decode the steps that the timeline's page sends.

This code is independent of the code that reads them in the browser.
"""

from __future__ import annotations

from typing import Any


def written_out(sent: dict[str, Any]) -> list[tuple[int, int, str, bool]]:
    """Return start and end, name, and whether it counts, of each step.

    Times are ns after the recording's start.
    """
    numbers = [int(number) for number in sent["times"].split()]
    names = [
        (text + ("" if number is None else str(number + i)) + (f" (not counted: {why})" if why else ""), why is None)
        for count, text, number, why in sent["names"]
        for i in range(count)
    ]
    steps, end = [], 0
    for (name, counted), between, length in zip(names, numbers[::2], numbers[1::2], strict=True):
        start, end = end + between, end + between + length
        steps.append((start, end, name, counted))
    return steps
