"""Read JSON documents with text between them, as tools print them in watch mode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.telemetry.table import SampleTable

_START = re.compile(r"[\[{]")
_DECODER = json.JSONDecoder()


def documents(lines: Iterator[bytes], table: SampleTable) -> Iterator[Any]:
    """Yield every JSON document of a file; incomplete documents are noted in ``table``."""
    text = b"\n".join(lines).decode("utf-8", errors="replace").lstrip("\ufeff")
    position = 0
    while (start := _START.search(text, position)) is not None:
        try:
            document, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            following = re.compile(r"\n[\[{]").search(text, start.end())
            if following is None:
                table.note("truncated", "data_loss", "The last sample was cut off.", example=text[start.start() :][:200])
                return
            table.note("line_unreadable", "data_loss", "Parts that are not whole samples were left out.")
            position = following.start()
            continue
        yield document
