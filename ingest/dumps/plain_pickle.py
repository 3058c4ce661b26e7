"""Decode a pickle of plain data without the ``pickle`` module.

Only opcodes that make numbers, texts, bytes, lists, tuples, sets and dicts are executed. Every opcode that could import, call or
build an object is refused, so a hostile file cannot run code. The file's size limits the memory, because an opcode's argument cannot be
longer than the file.
"""

from __future__ import annotations

import pickletools
from typing import Any, TypeVar

from sawtooth.ingest.errors import SourceError

T = TypeVar("T")

_MARK = object()
_VALUES = frozenset(
    [
        "INT",
        "LONG",
        "LONG1",
        "LONG4",
        "BININT",
        "BININT1",
        "BININT2",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    ]
)
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NO_EFFECT = frozenset({"PROTO", "FRAME"})


def is_pickle(head: bytes) -> bool:
    """Return whether ``head`` begins as a pickle of protocol 2 to 5."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def decode(data: bytes) -> Any:
    """Return the plain data in a pickle.

    Raises SourceError for a pickle that contains other data, or that is damaged or cut.
    """
    decoder = _Decoder()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return decoder.stack.pop()
            decoder.apply(opcode.name, argument)
    except SourceError:
        raise
    except Exception as error:  # pickletools raises ValueError, UnicodeError, IndexError, … for bytes that are not a pickle.
        raise _damage_error() from error
    raise _damage_error()


def _damage_error() -> SourceError:
    return SourceError("E-CUT", "This pickle ends early or is damaged. Copy the file again, and compare the sizes.")


class _Decoder:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def apply(self, name: str, argument: Any) -> None:
        stack, memo = self.stack, self._memo
        if name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(argument)])
        elif name in _VALUES:
            stack.append(argument)
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = stack[-1]
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            items = tuple(stack[-_TUPLES[name] :])
            del stack[-_TUPLES[name] :]
            stack.append(items)
        elif name not in _NO_EFFECT:
            self._collect(name)

    def _collect(self, name: str) -> None:
        """Execute an opcode that fills a container. Raises SourceError for every other opcode."""
        stack = self.stack
        if name in ("APPEND", "SETITEM"):
            count = 1 if name == "APPEND" else 2
            items = stack[-count:]
            del stack[-count:]
        elif name in ("APPENDS", "SETITEMS", "ADDITEMS", "TUPLE", "LIST", "DICT"):
            items = self._since_mark()
        else:
            raise SourceError(
                "E-TYPE",
                f"This pickle has other than plain data ({name}), so opening it could run code. Give a dump that PyTorch wrote, of NCCL's "
                "flight recorder or of torch.cuda.memory.",
            )
        match name:
            case "APPEND" | "APPENDS":
                self._top(list).extend(items)
            case "SETITEM" | "SETITEMS" | "DICT":
                if name == "DICT":
                    stack.append({})
                self._top(dict).update(zip(items[::2], items[1::2], strict=True))
            case "ADDITEMS":
                self._top(set).update(items)
            case "TUPLE":
                stack.append(tuple(items))
            case "LIST":
                stack.append(items)

    def _top(self, kind: type[T]) -> T:
        top = self.stack[-1]
        if type(top) is not kind:
            raise _damage_error()
        return top

    def _since_mark(self) -> list[Any]:
        mark_index = len(self.stack) - 1
        while self.stack[mark_index] is not _MARK:
            mark_index -= 1
            if mark_index < 0:
                raise _damage_error()
        items = self.stack[mark_index + 1 :]
        del self.stack[mark_index:]
        return items
