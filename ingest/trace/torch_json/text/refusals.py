"""The errors for files that are not traces, with a sentence for each case."""

from __future__ import annotations

import re

import msgspec

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.source import EXPORT, Limits

DEEP = 500  # brackets in an event that does not decode: above it, nesting is beyond any decoder's limit


def too_deep() -> SourceError:
    """Return the error for a file that nests beyond any decoder's limit."""
    return SourceError(
        "E-DEPTH", f"The file nests brackets more than {DEEP} deep, which no trace does. Record or copy it again."
    )


def cut_early(size: int) -> SourceError:
    """Return the error for a file of ``size`` bytes that ends before its first event."""
    sentence = (
        f"The file ends after {size:,} bytes, before its first event: the job or the copy was stopped. Record or copy it again."
    )
    return SourceError("E-TRUNC", sentence, offset=size)


def too_long(offset: int, limits: Limits) -> SourceError:
    """Return the error for a file with an event longer than ``limits`` allows."""
    sentence = f"The event at byte {offset:,} is longer than {limits.event_bytes >> 20} MB. No profiler writes such events: the file is damaged there. Record or copy it again."
    return SourceError("E-TOKEN", sentence, offset=offset)


def no_list() -> SourceError:
    """Return the error for a file whose ``traceEvents`` is not a list."""
    return SourceError("E-NOEV", "traceEvents is not a list, so there are no events. Record the trace again.")


def no_events_near(limits: Limits) -> SourceError:
    """Return the error for a file with more text before its list of events than ``limits`` allows."""
    return SourceError("E-LIMIT", f"No traceEvents within the first {limits.metadata_bytes >> 20} MB. {EXPORT}")


def no_trace(text: bytes, size: int) -> SourceError:
    """Return the error for a file of ``size`` bytes (or the start of one) without a list of events."""
    if not text:
        return SourceError("E-EMPTY", "The file holds only blanks. Record or copy it again.")
    if not text.startswith(b"{"):
        return SourceError(
            "E-TYPE",
            f"This is neither a torch.profiler trace, which begins with {{ or [, nor telemetry that Sawtooth knows: it begins with {as_shown(_first_line(text))}. Give a trace's .json or .json.gz.",
        )
    try:
        document = msgspec.json.decode(text)
    except RecursionError:
        return too_deep()
    except UnicodeDecodeError:
        return SourceError("E-ENC", f"The file has no traceEvents and is no UTF-8 text. {EXPORT}")
    except msgspec.MsgspecError as error:
        return _no_json(text, size, str(error))
    what = (
        f"an object with the keys {', '.join(as_shown(str(key)) for key in list(document)[:4])}"
        if document
        else "an empty object"
    )
    return SourceError("E-NOEV", f"This is {what}, without traceEvents. {EXPORT}")


def _no_json(text: bytes, size: int, message: str) -> SourceError:
    if "truncated" in message:
        return cut_early(size)
    if re.match(rb"\{[^\n]*\}\s*\n\s*\{", text):
        return SourceError(
            "E-TYPE", f"This is one JSON object per line, not a trace or telemetry that Sawtooth knows. {EXPORT}"
        )
    match = re.search(r"byte (\d+)", message)
    offset = int(match.group(1)) if match else 0
    line = text.count(b"\n", 0, offset) + 1
    return SourceError(
        "E-JSON", f"The file has no traceEvents and is not valid JSON (line {line}, byte {offset}). {EXPORT}", offset=offset
    )


def _first_line(text: bytes) -> bytes:
    return text.split(b"\n", 1)[0]
