"""Decode JSON and MessagePack into types, in any thread.

msgspec collects information about a type when it is first decoded, and publishes this information before it is complete. If two threads decode a
type for the first time at once, the second one crashes the process (msgspec 0.22; seen when two users opened a new server at the same time).
Therefore this module creates decoders one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_DECODERS: dict[tuple[Any, Any, Any], Any] = {}
_CREATION_LOCK = threading.Lock()  # One lock for all types, because fields of two types can share a type.


def from_json(content: bytes | str, kind: type[T]) -> T:
    """Decode JSON into the type ``kind``.

    Raises msgspec.MsgspecError for other content.
    """
    result: T = _decode(_decoder(msgspec.json.Decoder, kind, None), content)
    return result


def from_msgpack(content: bytes, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Decode MessagePack into the type ``kind``; ``dec_hook`` decodes types that msgspec does not know.

    Raises msgspec.MsgspecError for other content.
    """
    result: T = _decode(_decoder(msgspec.msgpack.Decoder, kind, dec_hook), content)
    return result


def _decode(decoder: Any, content: bytes | str) -> Any:
    try:
        return decoder.decode(content)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec does not catch these two.
        raise msgspec.DecodeError(f"it is not text, or nested too deep ({error})") from error


def _decoder(make: Any, kind: Any, dec_hook: Any) -> Any:
    key = (make, kind, dec_hook)
    if key not in _DECODERS:
        with _CREATION_LOCK:
            if key not in _DECODERS:
                _DECODERS[key] = make(kind, dec_hook=dec_hook)
    return _DECODERS[key]
