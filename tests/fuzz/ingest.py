"""Feed damaged traces and telemetry to the ingest for a given time.

    python -m tests.fuzz.ingest [--seconds 300] [--seed 1] [--keep FOLDER]

Every input must be read or refused in a sentence. Inputs are made from the bad inputs of the tests by cutting, copying,
splicing and flipping bytes. An input fails if it raises another error than SourceError, takes longer than SLOW_SECONDS, or
leaves a file behind. Then it is saved, and the run ends with code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from pathlib import Path

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support import bad_traces as bad
from tests.support import sound_trace
from tests.support.paths import TELEMETRY

SLOW_SECONDS = 10.0  # Longest time to ingest an input. Each input has at most some hundred KB.
MAX_BYTES = 400_000  # Largest entry of the corpus. Other tests check compression bombs.
SNIPPETS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"NaN",
    b"1e999",
    b"-",
    b"\xff",
    b"\x00",
    b'"ts": ',
    b'"ph": "X"',
    b"}, {",
    b"\x1f\x8b",
    b"null",
]
SNIPPETS += [
    b'"traceEvents": [',
    b'"args": {',
    b"9" * 40,
    b'"correlation": ',
    b'"name": "',
    b"\\ud800",
    b'"ph": "B"',
    b'"ph": "E"',
    b'"cat": ""',
    b"0",
    b"[]",
]


def corpus() -> list[bytes]:
    """Return the files that are changed to make inputs: bad inputs of the tests, and telemetry."""
    lines = [
        {"meta": True, "name": "NVIDIA H200"},
        *({"t_ns": sound_trace.BASE + i * 10**8, "gpu_util": i, "mem_used": 5} for i in range(20)),
    ]
    telemetry = "\n".join(map(json.dumps, lines)).encode()
    folder = TELEMETRY
    files = [p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".py"] if folder.is_dir() else []
    cases = [case.content for case in (*bad.REFUSED, *bad.REPAIRED, *bad.ODD)]
    return [content for content in (*cases, telemetry, *files) if len(content) <= MAX_BYTES]


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    """Return one input: a random file of ``seeds`` with random changes."""
    content = bytearray(rng.choice(seeds))
    if content[:2] == b"\x1f\x8b" and rng.random() < 0.5:
        with contextlib.suppress(OSError, EOFError, zlib.error):
            content = bytearray(gzip.decompress(content))
    for _ in range(rng.choice((1, 1, 2, 3, 5, 20))):
        at = rng.randrange(len(content) + 1)
        to = min(len(content), at + rng.choice((1, 1, 4, 30, 400)))
        match rng.randrange(6):
            case 0:
                content[at:to] = b""
            case 1:
                content[at:at] = rng.choice(SNIPPETS)
            case 2:
                content[at:to] = bytes(rng.randrange(256) for _ in range(to - at))
            case 3:
                content[at:at] = content[at:to] * rng.choice((1, 2, 50))
            case 4:
                other = rng.choice(seeds)
                start = rng.randrange(len(other) + 1)
                content[at:to] = other[start : start + 300]
            case 5:
                content[at:to] = rng.choice(SNIPPETS)
    return gzip.compress(bytes(content)) if rng.random() < 0.1 else bytes(content)


def outcome(content: bytes, root: Path) -> str:
    """Ingest ``content`` and return "read" or the code of the refusal; raise every other error."""
    path, folder = root / "input", DataFolder(root / "data")
    path.write_bytes(content)
    start = time.perf_counter()
    try:
        ingest_file(path, folder)
        found = "read"
    except SourceError as refusal:
        found = refusal.code
        left = [p.name for place in (folder.recordings, folder.sources) for p in place.iterdir()]
        if left:
            raise AssertionError(f"refused, but left {left}") from refusal
    if (seconds := time.perf_counter() - start) > SLOW_SECONDS:
        raise AssertionError(f"took {seconds:.0f} s")
    shutil.rmtree(folder.root)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz_failures"))
    given = parser.parse_args()
    rng, seeds, counts, failures = random.Random(given.seed), corpus(), Counter[str](), 0
    root = Path(tempfile.mkdtemp())
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        content = mutated(rng, seeds)
        try:
            counts[outcome(content, root)] += 1
        except Exception:
            failures += 1
            given.keep.mkdir(exist_ok=True)
            (given.keep / f"{given.seed}_{sum(counts.values())}").write_bytes(content)
            traceback.print_exc()
            shutil.rmtree(root / "data", ignore_errors=True)
    shutil.rmtree(root)
    print(f"{sum(counts.values())} inputs, {failures} failures: {dict(counts.most_common())}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
