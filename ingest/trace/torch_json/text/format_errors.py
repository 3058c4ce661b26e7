"""The errors for files that are not traces, with a sentence for each case."""

from __future__ import annotations

import re

import msgspec

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.source import EXPORT_ADVICE, Limits

DEEP_BRACKETS = 500  # An event that does not decode and has more opening brackets is reported as nested too deeply.
CHECKED_BYTES = 1024  # Only the beginning of a file is checked for bytes that no text has.
MIN_TEXT_BYTE = 9  # No byte of a text is smaller than a tab (9), unless the text is UTF-16.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
JSON_LINES = re.compile(rb"\{[^\n]*\}\s*\n\s*\{")  # Matches two lines with a JSON object each.


def too_deep_error() -> SourceError:
    """Return the error for a file whose brackets are nested too deeply for the decoder."""
    return SourceError(
        "E-DEPTH", f"The file nests brackets more than {DEEP_BRACKETS} deep, so it is damaged or not a trace. Copy it again."
    )


def truncated_error(size: int) -> SourceError:
    """Return the error for a file of ``size`` bytes that ends before its first event."""
    return SourceError(
        "E-TRUNC",
        f"The file ends after {size:,} bytes, before its first event, because the job or the copy was stopped. Record or copy it again.",
        offset=size,
    )


def long_event_error(offset: int, limits: Limits) -> SourceError:
    """Return the error for a file with an event longer than ``limits`` allows."""
    return SourceError(
        "E-TOKEN",
        f"The event at byte {offset:,} is longer than {limits.event_bytes >> 20} MB, which no profiler writes, so the file is damaged. "
        "Record or copy it again.",
        offset=offset,
    )


def events_not_a_list_error() -> SourceError:
    """Return the error for a file whose ``traceEvents`` is not a list."""
    return SourceError("E-NOEV", "traceEvents is not a list, so there are no events. Record the trace again.")


def late_events_error(limits: Limits) -> SourceError:
    """Return the error for a file whose ``traceEvents`` begin beyond the allowed size of the metadata."""
    return SourceError("E-LIMIT", f"The first {limits.metadata_bytes >> 20} MB have no traceEvents. {EXPORT_ADVICE}")


def not_a_trace_error(text: bytes, size: int) -> SourceError:
    """Return the error for a file without a list of events.

    ``text`` is the file or its first part; ``size`` is the number of bytes read.
    """
    if not text:
        return SourceError("E-EMPTY", "The file is empty or has only white space. Record or copy it again.")
    if not text.startswith(b"{"):
        if min(text[:CHECKED_BYTES]) < MIN_TEXT_BYTE and not text.startswith(UTF_16):
            return SourceError(
                "E-TYPE",
                "This is binary data, but neither a torch.profiler trace nor telemetry that Sawtooth knows. If it was a compressed trace, "
                "it is damaged. Copy or record it again.",
            )
        return SourceError(
            "E-TYPE",
            f"The file begins with {as_shown(_first_line(text))}. It is neither a torch.profiler trace, which begins with {{ or [, nor telemetry "
            "that Sawtooth knows. Pass the trace as .json or .json.gz.",
        )
    try:
        document = msgspec.json.decode(text)
    except RecursionError:
        return too_deep_error()
    except UnicodeDecodeError:
        return SourceError("E-ENC", f"The file has no traceEvents and is not UTF-8 text. {EXPORT_ADVICE}")
    except msgspec.MsgspecError as error:
        return _json_error(text, size, str(error))
    content = (
        f"a JSON object with the keys {', '.join(as_shown(str(key)) for key in list(document)[:4])}"
        if document
        else "an empty JSON object"
    )
    return SourceError("E-NOEV", f"This is {content}, without traceEvents. {EXPORT_ADVICE}")


def _json_error(text: bytes, size: int, message: str) -> SourceError:
    """Return the error for a text that msgspec cannot decode; ``message`` is the message of msgspec."""
    if "truncated" in message:  # msgspec has no class for this error. Its message is "Input data was truncated".
        return truncated_error(size)
    if JSON_LINES.match(text):
        return SourceError(
            "E-TYPE",
            f"The file has a JSON object per line, but is neither a trace nor telemetry that Sawtooth knows. {EXPORT_ADVICE}",
        )
    match = re.search(r"byte (\d+)", message)
    offset = int(match.group(1)) if match else 0
    line = text.count(b"\n", 0, offset) + 1
    return SourceError(
        "E-JSON",
        f"The file has no traceEvents and is not valid JSON (line {line}, byte {offset}). {EXPORT_ADVICE}",
        offset=offset,
    )


def _first_line(text: bytes) -> bytes:
    return text.split(b"\n", 1)[0]
