"""JSON and MessagePack into types, in any thread.

msgspec gathers what it knows of a type when the type is first decoded, and publishes it half done: of two threads that decode it for the first time,
the second ends the process (msgspec 0.22; two people who opened a fresh server at once ended it). So decoders are made here, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_DECODERS: dict[tuple[Any, Any, Any], Any] = {}
_ONE_AT_A_TIME = threading.Lock()  # for all types: they share those of their fields


def from_json(content: bytes | str, kind: type[T]) -> T:
    """Return the ``kind`` that JSON holds. Raises msgspec.MsgspecError for content that holds none."""
    result: T = _whole(_decoder(msgspec.json.Decoder, kind, None), content)
    return result


def from_msgpack(content: bytes, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Return the ``kind`` that MessagePack holds; ``dec_hook`` makes what msgspec cannot. Raises msgspec.MsgspecError for content that holds none."""
    result: T = _whole(_decoder(msgspec.msgpack.Decoder, kind, dec_hook), content)
    return result


def _whole(decoder: Any, content: bytes | str) -> Any:
    try:
        return decoder.decode(content)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec lets these two through
        raise msgspec.DecodeError(f"it is no text, or nested too deep ({error})") from error


def _decoder(make: Any, kind: Any, dec_hook: Any) -> Any:
    key = (make, kind, dec_hook)
    if key not in _DECODERS:
        with _ONE_AT_A_TIME:
            if key not in _DECODERS:
                _DECODERS[key] = make(kind, dec_hook=dec_hook)
    return _DECODERS[key]
