"""Tests of typed decoding in several threads at once."""

import ast
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from sawtooth.ingest import children
from sawtooth.ingest.typed import from_json, from_msgpack
from tests.support.paths import ROOT

SIX_THREADS = """
import sys, threading
from sawtooth.analysis import result_cache
from sawtooth.ingest.errors import SawtoothError
sys.setswitchinterval(1e-6)
content, start = result_cache.with_checksum(b"\\x81\\xa6result\\x80"), threading.Barrier(6)
def open_it():
    start.wait()
    try:
        result_cache.load(content, None)
    except SawtoothError:
        refused.append(1)
refused = []
threads = [threading.Thread(target=open_it) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(refused))
"""


def test_simultaneous_first_requests_do_not_crash_the_server() -> None:
    # Without the lock of `ingest.typed`, they crashed the process twelve times of twelve.
    done = subprocess.run(
        [sys.executable, "-c", SIX_THREADS], env=children.environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr


def test_a_value_of_the_wrong_type_is_refused() -> None:
    assert from_json(b"[1, 2]", list[int]) == [1, 2]
    assert from_msgpack(msgspec.msgpack.encode([1.5]), list[float]) == [1.5]
    with pytest.raises(msgspec.ValidationError):
        from_json(b'["one"]', list[int])
    # For these, msgspec raises errors of Python.
    for content, kind in (
        (b'["\xff"]', list[str]),
        (b"[" * 100_000, list[Any]),
    ):
        with pytest.raises(msgspec.DecodeError):
            from_json(content, kind)


def test_types_are_decoded_only_in_one_module() -> None:
    """Only ``ingest.typed`` decodes into types, except for the processes of ``torch_json``."""
    for room in ("analysis", "app", "ingest"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if "torch_json" in path.parts:
                continue
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if ".decode" in text else ():
                typed = isinstance(node, ast.Call) and any(word.arg == "type" for word in node.keywords)
                assert not (typed and ast.unparse(node.func).endswith(".decode")), (
                    f"{path.relative_to(ROOT)}: sawtooth.ingest.typed"
                )
