"""Inputs that a trace reader meets in practice, each with the expected result.

All are built here from one intact trace.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass

from tests.support.sound_trace import GOOD, PACKED, each, event, kernel, members, sound, sound_events, text, with_event


@dataclass(frozen=True)
class Case:
    """One input and the expected result.

    ``wanted`` is the code of a refusal, "same" (the tables equal those of the intact trace), "skip" (the odd event is
    left out) or "keep" (the odd event is stored).
    """

    name: str
    content: bytes
    wanted: str
    note: str | None = None  # A diagnostic that must be present.
    says: str = ""  # A part of the refusal's sentence.
    stored: str | None = None  # The name under which the stored event is saved.


def archive(kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("trace.json", text())
    else:
        with tarfile.open(fileobj=buffer, mode="w") as file:
            info = tarfile.TarInfo("trace.json")
            info.size = len(text())
            file.addfile(info, io.BytesIO(text()))
    return buffer.getvalue()


def bomb(body: bytes, times: int) -> bytes:
    """Return a gzip file of a list's start and ``body`` repeated ``times`` times.

    A full flush makes every block the same, so that one block is compressed and repeated. Compressing all took 2 s in each pytest worker.
    """
    start = b'{"traceEvents": ['
    checksum = zlib.crc32(start)
    for _ in range(times):
        checksum = zlib.crc32(body, checksum)
    squeeze = zlib.compressobj(9, wbits=-15)
    head = squeeze.compress(start) + squeeze.flush(zlib.Z_FULL_FLUSH)
    block = squeeze.compress(body) + squeeze.flush(zlib.Z_FULL_FLUSH)
    size = (len(start) + len(body) * times) % (1 << 32)
    return PACKED[:10] + head + block * times + squeeze.flush() + struct.pack("<II", checksum, size)


HUGE = 30_000  # Digits or letters. This exceeds what parsers expect, and is small enough to build at once.

REFUSED = [
    Case("empty", b"", "E-EMPTY"),
    Case("gzip of nothing", gzip.compress(b""), "E-EMPTY"),
    Case("blanks", b" \n\t \r\n", "E-EMPTY"),
    Case("null", b"null", "E-TYPE"),
    Case("number", b"42", "E-TYPE"),
    Case("string", b'"x"', "E-TYPE"),
    Case("empty object", b"{}", "E-NOEV"),
    Case("no events", b'{"traceEvents": []}', "E-NOEV"),
    Case("empty list", b"[]", "E-NOEV"),
    Case("events are an object", b'{"traceEvents": {}}', "E-NOEV"),
    Case("events are null", b'{"traceEvents": null}', "E-NOEV"),
    Case("events are a string", b'{"traceEvents": "none"}', "E-NOEV"),
    Case("events are numbers", b'{"traceEvents": [1, 2, 3]}', "E-JSON"),
    Case("only metadata events", text(sound([{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}])), "E-NOEV"),
    Case("only counters", text(sound([{"ph": "C", "name": "GPU", "pid": 1, "ts": 1, "args": {"v": 1}}])), "E-NOEV"),
    Case("unknown phase", text(sound([{"ph": "?", "cat": "cpu_op", "name": "x", "ts": 1, "dur": 1}])), "E-NOEV"),
    Case("foreign categories", text(sound([event("physics", "Collide"), event("audio", "Mix")])), "E-NOEV", says="physics"),
    Case("a browser's categories", text(sound([event("toplevel", "RunTask"), event("blink", "Paint")])), "E-TYPE", says="Chrome"),
    Case("png", b"\x89PNG\r\n\x1a\n" + bytes(64), "E-TYPE", says="PNG"),
    Case("pdf", b"%PDF-1.7\n", "E-TYPE", says="PDF"),
    Case("elf", b"\x7fELF\x02\x01\x01" + bytes(64), "E-TYPE", says="ELF"),
    Case("zip", archive("zip"), "E-TYPE", says="zip"),
    Case("tar", archive("tar"), "E-TYPE", says="tar"),
    Case("tar.gz", gzip.compress(archive("tar")), "E-TYPE", says="tar"),
    Case("xz", lzma.compress(GOOD), "E-TYPE", says="xz"),
    Case("bzip2", bz2.compress(GOOD), "E-TYPE", says="bzip2"),
    Case("zstd", b"(\xb5/\xfd" + bytes(32), "E-TYPE", says="zstd"),
    Case("7z", b"7z\xbc\xaf\x27\x1c" + bytes(32), "E-TYPE", says="7z"),
    Case("web page", b"<!DOCTYPE html><html><body>Sign in</body></html>", "E-TYPE", says="web page"),
    Case("xml", b"<?xml version='1.0'?><a/>", "E-TYPE", says="XML"),
    Case("pickle", pickle.dumps({"traceEvents": []}, protocol=4), "E-TYPE", says="pickle"),
    Case("duckdb", bytes(8) + b"DUCK" + bytes(64), "E-TYPE", says="DuckDB"),
    Case("parquet", b"PAR1" + bytes(64), "E-TYPE", says="Parquet"),
    Case("sqlite", b"SQLite format 3\x00" + bytes(64), "E-TYPE", says="SQLite"),
    Case("perfetto protobuf", b"\n\x8b\x01\n\x12\x08\x01" + bytes(range(128, 200)), "E-TYPE"),
    Case("tensorboard events", struct.pack("<Q", 24) + bytes(40), "E-TYPE", says="binary"),
    Case("lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "E-TYPE", says="LFS"),
    Case("double gzip", gzip.compress(PACKED), "E-TYPE", says="inside"),
    Case("gzip header only", PACKED[:10], "E-TRUNC"),
    Case("half a gzip header", PACKED[:5], "E-TRUNC"),
    Case("utf-16", GOOD.decode().encode("utf-16"), "E-ENC", says="UTF-8"),
    Case("utf-16 without mark", GOOD.decode().encode("utf-16-le"), "E-ENC", says="UTF-8"),
    Case("utf-32", GOOD.decode().encode("utf-32-le"), "E-ENC", says="UTF-8"),
    Case("events one per line", b"\n".join(json.dumps(e).encode() for e in sound_events()), "E-TYPE", says="per line"),
    Case("python repr", repr(sound()).encode(), "E-JSON", says="line 1"),
    Case("comments", b"// a trace\n" + GOOD, "E-TYPE"),
    Case("plain text", b"step 1 loss 0.3\nstep 2 loss 0.2\n", "E-TYPE"),
    Case("other csv", b"a,b,c\n1,2,3\n", "E-TYPE"),
    Case("deep list", b"[" * 500_000, "E-DEPTH"),
    Case("deep object", b'{"a":' * 500_000, "E-DEPTH"),
    Case("deep event", b'{"traceEvents": [{"args": ' + b"[" * 100_000, "E-DEPTH"),
    Case("cut in the head", GOOD[:30], "E-TRUNC"),
    Case("cut before the list", GOOD[: GOOD.index(b"traceEvents") + 13], "E-TRUNC"),
    Case("cut in the first event", GOOD[: GOOD.index(b"ProfilerStep") + 5], "E-TRUNC"),
    Case("blank bomb", bomb(b" " * (1 << 20), 300), "E-BOMB"),
    Case("endless string", bomb(b"a" * (1 << 20), 40), "E-TOKEN"),
    Case("endless metadata", b'{"x": "' + b"a" * (34 << 20), "E-LIMIT"),
    Case("commas without end", bomb(b"," * (1 << 20), 300), "E-TOKEN"),
    Case("deep metadata", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"," + GOOD[1:], "E-DEPTH", says="Copy it again"),
    Case("jpeg", b"\xff\xd8\xff\xe0" + bytes(64), "E-TYPE", says="JPEG"),
    Case("lz4", b"\x04\x22\x4d\x18" + bytes(32), "E-TYPE", says="lz4"),
    Case("gzip of zip", gzip.compress(archive("zip")), "E-TYPE", says="zip"),
    Case("gzip of a web page", gzip.compress(b"\n <HTML><body>Sign in"), "E-TYPE", says="web page"),
    Case("gzip of utf-16", gzip.compress(GOOD.decode().encode("utf-16")), "E-ENC", says="UTF-8"),
    Case("pickle of protocol 0", pickle.dumps({"traceEvents": []}, protocol=0), "E-TYPE"),
    Case("pickle of protocol 2", pickle.dumps({"traceEvents": []}, protocol=2), "E-TYPE", says="pickle"),
    Case("zeros", bytes(5000), "E-TYPE"),
    Case("zlib", zlib.compress(GOOD), "E-TYPE"),
    Case("base64", base64.b64encode(PACKED), "E-TYPE", says="H4sI"),
    Case("yaml", b"---\ntraceEvents:\n  - ph: X\n", "E-TYPE", says="'---'"),
    Case("ini", b"[section]\nkey=value\n", "E-JSON"),
    Case("assigned to a variable", b"var trace = " + GOOD, "E-TYPE", says="var trace"),
    Case("unquoted keys", b"{traceEvents: [{ph: 'X'}]}", "E-JSON", says="line 1, byte 1"),
    Case("comment before the events", b'{\n// a trace\n"schemaVersion": 1,' + GOOD[1:], "E-JSON", says="line 2"),
    Case("list of lists", b"[[1, 2], [3, 4]]", "E-JSON", says="[1, 2]"),
    Case("a trace inside an object", b'{"data": ' + GOOD + b"}", "E-NOEV", says="data"),
    Case("an answer of a web service", b'{"message": "401 Unauthorized"}', "E-NOEV", says="message"),
    Case("gzip with another method", PACKED[:2] + b"\x07" + PACKED[3:], "E-TRUNC", says="none of its"),
    Case("gzip damaged in its head", PACKED[:12] + b"\xff" * 40 + PACKED[52:], "E-TRUNC", says="damaged"),
    Case("gzip with an endless file name", PACKED[:3] + b"\x08" + PACKED[4:10] + b"a" * 100_000, "E-TRUNC"),
    Case("only names", text(sound([sound_events()[-1]])), "E-NOEV", says="only names"),
    Case("only flows", text(sound([e for e in sound_events() if e["ph"] in "sf"])), "E-NOEV", says="ph s (3)"),
    Case("no phases", text(sound([{k: v for k, v in event().items() if k != "ph"}])), "E-NOEV", says="ph (1)"),
    Case("all without times", each(ts=None), "E-NOEV", says="no readable ts or dur (24)"),
    Case("all lasting NaN", each(dur=float("nan")), "E-NOEV", says="no readable ts or dur"),
    Case("all ending before they start", each(dur=-1), "E-NOEV", says="a negative duration"),
    Case("all lasting for ever", each(dur=9e15), "E-NOEV", says="more than 7 days"),
    Case("dates for times", each(ts="2026-11-21T09:30:00Z"), "E-NOEV", says="no readable ts"),
    Case("nanoseconds for microseconds", each(ts=1.7e18), "E-NOEV", says="no readable ts"),
    Case("a thousand GPUs", text(sound([event("kernel", "k", i, 1, device=i, stream=7) for i in range(1000)])), "E-LIMIT", says="256 GPUs"),
    Case("nvidia-smi's table", b"Sat Nov 21 02:38:47 2026\n+----+\n| NVIDIA-SMI 580.1   Driver Version: 580.1 |\n", "E-TYPE", says="--query-gpu"),
    Case("nvidia-smi -q", b"\n=====NVSMI LOG=====\n\nTimestamp : Sat Nov 21 02:38:47 2026\n", "E-TYPE", says="--query-gpu"),
    Case("nvidia-smi -x", b'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "x.dtd">\n<nvidia_smi_log>', "E-TYPE", says="--query-gpu"),
    Case("nvidia-smi without a driver", b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "E-TYPE", says="--query-gpu"),
    Case("samples without their header", b"2026/11/21 02:38:47.500, 0, 5 %\n", "E-TYPE", says="2026/11/21"),
]  # fmt: skip

REPAIRED = [
    Case("gzip", PACKED, "same"),
    Case("several members", members(GOOD, 7), "same"),
    Case("zero padding", PACKED + bytes(512), "same"),
    Case("garbage behind gzip", PACKED + b"garbage", "same", "gzip_tail"),
    Case("wrong gzip checksum", PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], "same", "gzip_crc"),
    Case("no gzip trailer", PACKED[:-8], "same", "gzip_truncated"),
    Case("byte order mark", b"\xef\xbb\xbf" + GOOD, "same"),
    Case("pretty", text(indent=4), "same"),
    Case("compact", text(separators=(",", ":")), "same"),
    Case("windows line ends", text(indent=1).replace(b"\n", b"\r\n"), "same"),
    Case("leading blanks", b"\n\n  " + GOOD, "same"),
    Case(
        "keys in other order",
        text({k: [dict(reversed(e.items())) for e in v] if k == "traceEvents" else v for k, v in reversed(sound().items())}),
        "same",
    ),
    Case("trailing comma", text().replace(b"}]}", b"},]}"), "same"),
    Case("missing closing brackets", GOOD[:-2], "same", "truncated"),
    Case("missing last brace", GOOD[:-1], "same", "truncated"),
    Case("garbage behind", GOOD + b"\n# the end", "same", "tail"),
    Case("two documents", GOOD + GOOD, "same", "tail"),
    Case("zeros behind", GOOD + bytes(5000), "same", "tail"),
    Case("an empty member and padding", PACKED + gzip.compress(b"") + bytes(10), "same"),
    Case("a trace behind gzip", PACKED + GOOD, "same", "gzip_tail"),
    Case("wrong gzip size", PACKED[:-4] + b"\xff" * 4, "same", "gzip_crc"),
    Case("mark inside gzip", gzip.compress(b"\xef\xbb\xbf" + GOOD), "same"),
    Case("commas doubled", GOOD.replace(b'}, {"ph"', b'},,, {"ph"'), "same"),
    Case("comma missing", GOOD.replace(b'}, {"ph"', b'} {"ph"', 3), "same"),
    Case("comma first", GOOD.replace(b'"traceEvents": [', b'"traceEvents": [,'), "same"),
    Case("deep metadata behind", GOOD[:-1] + b', "x": ' + b"[" * 900 + b"]" * 900 + b"}", "same"),
    Case("odd ranks", GOOD[:-1] + b', "distributedInfo": {"rank": NaN, "world_size": -1}}', "same"),
    Case("odd properties", GOOD[:-1] + b', "x": "a\x01\xff\\ud800", "y": -Infinity}', "same"),
    Case("events twice", GOOD[:-1] + b', "traceEvents": []}', "same", "second_events"),
    Case("NaN in metadata", GOOD.replace(b'{"schemaVersion"', b'{"loss": NaN, "schemaVersion"'), "same", "metadata_repaired"),
    Case(
        "backslash in metadata",
        GOOD.replace(b'{"schemaVersion"', b'{"cwd": "C:\\Users\\me", "schemaVersion"'),
        "same",
        "metadata_repaired",
    ),
    Case("backslash in traceName", GOOD[:-1] + b', "traceName": "C:\\traces\\x.json"}', "same"),
    Case("relative zero base and Unix times", text(sound([{**e, "ts": float(e["ts"])} for e in sound_events()])), "same"),
    Case(
        "times as text",
        text(sound([{**e, "ts": str(e["ts"]), **({"dur": str(e["dur"])} if "dur" in e else {})} for e in sound_events()])),
        "same",
    ),
    Case("pids as text", text(sound([{**e, "pid": str(e["pid"]), "tid": str(e["tid"])} for e in sound_events()])), "same"),
]

ODD = [
    Case("NaN duration", with_event(kernel(dur=b"NaN")), "skip", "time_missing"),
    Case("Infinity duration", with_event(kernel(dur=b"Infinity")), "skip", "time_missing"),
    Case("-inf start", with_event(kernel(ts=b"-inf")), "skip", "time_missing"),
    Case("negative duration", with_event(kernel(dur=b"-3")), "skip", "duration_negative"),
    Case("236 years", with_event(kernel(dur=b"7447000000000000.0")), "skip", "duration_absurd"),
    Case("no start", with_event(kernel().replace(b'"ts": 500.5, ', b"")), "skip", "time_missing"),
    Case("no duration", with_event(kernel().replace(b'"dur": 7.25, ', b"")), "skip", "time_missing"),
    Case("null duration", with_event(kernel(dur=b"null")), "skip", "time_missing"),
    Case("list as start", with_event(kernel(ts=b"[1]")), "skip", "time_missing"),
    Case("start 2^63", with_event(kernel(ts=b"9223372036854775808")), "skip", "time_missing"),
    Case("start 2^64", with_event(kernel(ts=b"18446744073709551616")), "skip", "time_missing"),
    Case("start -2^63", with_event(kernel(ts=b"-9223372036854775808")), "skip", "time_missing"),
    Case("start 1e400", with_event(kernel(ts=b"1e400")), "skip", "time_missing"),
    Case("start of many digits", with_event(kernel(ts=b"1" * HUGE)), "skip", "time_missing"),
    Case("duration 1e308", with_event(kernel(dur=b"1e308")), "skip", "duration_absurd"),
    Case("unclosed string", with_event(kernel(name=b'"abc')), "skip", "event_unreadable"),
    Case("unquoted key", with_event(kernel().replace(b'"dur"', b"dur")), "skip", "event_unreadable"),
    Case("comment between", with_event(b"// note\n" + kernel()), "keep", "event_unreadable"),
    Case("a number between", with_event(b"17"), "skip", "event_unreadable"),
    Case("a list between", with_event(b"[1, 2]"), "skip", "event_unreadable"),
    Case("duration 0", with_event(kernel(dur=b"0")), "keep"),
    Case("start with exponent", with_event(kernel(ts=b"5.005e2")), "keep"),
    Case("name missing", with_event(kernel().replace(b'"name": "k", ', b"")), "keep", "name_missing", stored="(unnamed)"),
    Case("name null", with_event(kernel(name=b"null")), "keep", "name_missing", stored="(unnamed)"),
    Case("name number", with_event(kernel(name=b"17")), "keep", "name_missing", stored="(unnamed)"),
    Case("name list", with_event(kernel(name=b'["k"]')), "keep", "name_missing", stored="(unnamed)"),
    Case("name of 1 MB", with_event(kernel(name=b'"' + b"n" * (1 << 20) + b'"')), "keep", "name_cut", stored="n" * (1 << 15)),
    Case("name key twice", with_event(kernel().replace(b'"pid"', b'"name": "last", "pid"')), "keep", stored="last"),
    Case("invalid UTF-8", with_event(kernel(name=b'"k\xff\xfe"')), "keep", "mended_utf8", stored="k��"),
    Case("invalid UTF-8 in args", with_event(kernel(args=b'{"correlation": 900, "x": "\xff"}')), "keep"),
    Case("lone surrogate", with_event(kernel(name=b'"k\\ud800"')), "keep", "mended_surrogate", stored="k�"),
    Case("surrogate pair", with_event(kernel(name=b'"k\\ud83d\\ude00"')), "keep", stored="k\U0001f600"),
    Case("lone surrogate in args", with_event(kernel(args=b'{"correlation": 900, "x": "\\udc00"}')), "keep"),
    Case("NUL in name", with_event(kernel(name=b'"k\\u0000z"')), "keep", stored="k\x00z"),
    Case("escape and bidi in name", with_event(kernel(name=b'"k\\u001b[31m\\u202e"')), "keep", stored="k\x1b[31m\u202e"),
    Case("raw control characters", with_event(kernel(name=b'"k\x01\x1b\n\tz"')), "keep", "mended_control", stored="k\x01\x1b\n\tz"),
    Case("unescaped backslash", with_event(kernel(name=b'"C:\\Users\\kernel.py"')), "keep", "mended_escape", stored="C:\\Users\\kernel.py"),
    Case("unescaped quotes and line break", with_event(kernel(name=b'"f("a", "b")\nrest"')), "keep", "mended_quote", stored='f("a", "b")\nrest'),
    Case("braces in name", with_event(kernel(name=b'"k{}, {lambda()#1}, {"')), "keep", stored="k{}, {lambda()#1}, {"),
    Case("bracket in name", with_event(kernel(name=b'"k], {\\"ph\\": 1"')), "keep", stored='k], {"ph": 1'),
    Case("NaN in args", with_event(kernel(args=b'{"correlation": 900, "blocks per SM": NaN, "warps per SM": -Infinity, "x": N/A}')), "keep", "mended_literal"),
    Case("inf as text", with_event(kernel(args=b'{"correlation": 900, "blocks per SM": "inf"}')), "keep"),
    Case("numbers as text", with_event(kernel(args=b'{"correlation": "900", "bytes": "12", "device": "0", "stream": "7"}')), "keep"),
    Case("numbers as floats", with_event(kernel(args=b'{"correlation": 900.0, "device": 0.0, "stream": 7.0}')), "keep"),
    Case("numbers beyond 64 bits", with_event(kernel(args=b'{"correlation": 99999999999999999999999, "External id": 18446744073709551616}')), "keep"),
    Case("integer of many digits in args", with_event(kernel(args=b'{"External id": ' + b"1" * HUGE + b"}")), "keep"),
    Case("objects where numbers belong", with_event(kernel(args=b'{"correlation": {"a": [1]}, "stream": [7], "grid": "x", "block": [1, null, 2]}')), "keep"),
    Case("args list", with_event(kernel(args=b"[1, 2]")), "keep"),
    Case("args null", with_event(kernel(args=b"null")), "keep"),
    Case("args missing", with_event(kernel().replace(b', "args": {"correlation": 900, "device": 0, "stream": 7}', b"")), "keep"),
    Case("args nested 65 deep", with_event(kernel(args=b'{"correlation": 900, "x": ' + b"[" * 65 + b"]" * 65 + b"}")), "keep"),
    Case("list of objects in args", with_event(kernel(args=b'{"correlation": 900, "x": [{"a": 1}, {"name": "b"}, {"ph": "X"}]}')), "keep"),
    Case("stream as text", with_event(kernel(args=b'{"correlation": 900}').replace(b'"tid": 7', b'"tid": "stream 7"')), "keep"),
    Case("pid and tid null", with_event(kernel().replace(b'"pid": 0, "tid": 7', b'"pid": null, "tid": null')), "keep"),
    Case("pid and tid missing", with_event(kernel().replace(b'"pid": 0, "tid": 7, ', b"")), "keep"),
    Case("device -1", with_event(kernel(args=b'{"correlation": 900, "device": -1, "stream": 7}')), "keep"),
    Case("device beyond 32 bits", with_event(kernel(args=b'{"correlation": 900, "device": 1099511627776, "registers per thread": 1e12}')), "keep"),
    Case("category in capitals", with_event(kernel().replace(b'"kernel"', b'"Kernel"')), "keep"),
]  # fmt: skip
