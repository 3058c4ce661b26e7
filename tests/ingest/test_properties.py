"""Tests that the notation of a trace does not change the numbers.

A truncated trace gives a prefix of the events.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from sawtooth.ingest.decode import NULL, decimal_ns, integers
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.text.events import FLOWS
from tests.support import sound_trace
from tests.support.recorded_tables import read


def pieces(content, sizes):
    stream = io.BytesIO(content)
    for size in sizes:
        if not (piece := stream.read(size)):
            return
        yield piece
    while piece := stream.read(64):
        yield piece


def plain(document):
    """Return every event as read, and only the phase of flow arrows, which are not decoded."""
    events = [e for block in document.events() for e in block]
    return [(e.ph,) if e.ph in FLOWS else (e.ph, e.cat, e.name, bytes(e.ts), bytes(e.dur), bytes(e.args)) for e in events]


@settings(max_examples=150, deadline=None)
@given(
    block=st.integers(1, 3000),
    sizes=st.lists(st.integers(1, 700), max_size=40),
    indent=st.sampled_from([None, 0, 2]),
    tail=st.booleans(),
)
def test_block_and_piece_borders_change_nothing(block, sizes, indent, tail):
    extra = (
        {"distributedInfo": {"pg_config": [{"a": [{"b": 1}, {"c": 2}]}, {"d": "}, {"}]}, "traceName": "a}]b"} if tail else {}
    )
    events = [*sound_trace.sound_events(2), sound_trace.event(name='odd }, { ] " \\ name', x=[{"name": "n"}, {"ph": "X"}])]
    content = json.dumps({"schemaVersion": 1, "traceEvents": events, **extra}, indent=indent).encode()
    complete = Document(iter([content]), Limits())
    expected = plain(complete)
    cut = Document(pieces(content, sizes), Limits(), block_bytes=block)
    assert plain(cut) == expected and len(expected) == len(events)
    assert cut.metadata == complete.metadata == {"schemaVersion": 1, **extra}
    assert not cut.truncated and not cut.notes


FORMS = {
    "seed": st.integers(0, 10**6),
    "indent": st.sampled_from([None, 1]),
    "packed": st.booleans(),
    "absolute": st.booleans(),
}


@settings(max_examples=8, deadline=None)
@given(**FORMS)
def test_order_and_form_of_the_file_do_not_matter(tmp_path_factory, sound, seed, indent, packed, absolute):
    check_form(tmp_path_factory, sound, seed, indent, packed, absolute)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**FORMS)
def test_order_and_form_of_the_file_do_not_matter_at_length(tmp_path_factory, sound, seed, indent, packed, absolute):
    check_form(tmp_path_factory, sound, seed, indent, packed, absolute)


def check_form(tmp_path_factory, sound, seed, indent, packed, absolute):
    """Check that the form of a trace does not change its tables.

    Events are permuted, keys reordered, text indented or compact, and times absolute or relative to a base.
    """
    shuffled = random.Random(seed)
    events = sound_trace.sound_events()
    shuffled.shuffle(events)
    events = [dict(shuffled.sample(list(e.items()), len(e))) for e in events]
    document = sound_trace.sound(events)
    content = json.dumps(document, indent=indent).encode()
    if absolute:  # Unix microseconds with three decimals are too precise for a float.
        del document["baseTimeNanoseconds"]
        for e in events:
            e["ts"] = f"@{(Decimal(sound_trace.BASE) / 1000 + Decimal(str(e['ts']))):f}@"
        content = json.dumps(document, indent=indent).replace('"@', "").replace('@"', "").encode()
    root = tmp_path_factory.mktemp("form")
    (root / "t").write_bytes(gzip.compress(content) if packed else content)
    folder = DataFolder(root / "data")
    tables, _, truncated = read(folder, ingest_file(root / "t", folder))
    assert tables == sound and not truncated


def test_every_cut_gives_a_clean_prefix():
    content = json.dumps(sound_trace.sound(sound_trace.sound_events(1)), indent=1).encode()
    expected = plain(Document(iter([content]), Limits()))
    counts = []
    for cut in range(len(content)):
        document = Document(iter([content[:cut]] if cut else []), Limits(), block_bytes=700)
        try:
            found = plain(document)
        except SourceError as refusal:
            assert refusal.code in ("E-TRUNC", "E-EMPTY"), (cut, refusal)
            continue
        assert found == expected[: len(found)]
        assert document.truncated
        counts.append(len(found))
    assert counts == sorted(counts) and counts[-1] == len(expected)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(sound_trace.GOOD)), st.integers(0, 80))
def test_damage_at_any_place_gives_events_or_a_refusal(junk, at, removed):
    """No damage causes another error."""
    content = sound_trace.GOOD[:at] + junk + sound_trace.GOOD[at + removed :]
    try:
        found = plain(Document(pieces(content, [100] * 30), Limits(), block_bytes=900))
    except SourceError as refusal:
        assert refusal.code.startswith("E-")
    else:
        assert len(found) <= 4 * len(content)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(10**15) + 1, 10**15 - 1), st.integers(0, 999), st.integers(0, 3), st.booleans()), max_size=30
    )
)
def test_times_are_exact(numbers):
    written, expected = [], []
    for complete, thousandths, decimals, quoted in numbers:
        fraction = f"{thousandths:03d}"[:decimals]
        number = f"{complete}.{fraction}" if fraction else f"{complete}"
        sign = -1 if number.startswith("-") else 1
        expected.append(complete * 1000 + sign * int((fraction or "0").ljust(3, "0")))
        written.append(Raw((f'"{number}"' if quoted else number).encode()))
    assert decimal_ns(written).tolist() == expected


def test_odd_numbers():
    texts = [
        b"",
        b"null",
        b'"x"',
        b"1e3",
        b"1.5e-3",
        b"0.0005",
        b"0.0015",
        b"1.",
        b".5",
        b"-0.001",
        b"12345678901234567890",
        b'"1\\n2"',
        b"true",
    ]
    # Halves are rounded to even, so 0.5 ns (0.0005 µs) gives 0, and 1.5 ns gives 2.
    wanted = [NULL, NULL, NULL, 10**6, 2, 0, 2, 1000, 500, -1, 1 << 62, NULL, NULL]
    assert decimal_ns([Raw(t) for t in texts]).tolist() == wanted
    assert integers([1, "2", 3.0, None, "x", 2**70, True, float("nan")]).tolist() == [1, 2, 3, NULL, NULL, NULL, 1, NULL]
