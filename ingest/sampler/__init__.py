"""The GPU sampler: its own small process beside a training job, made of the standard library and NVML's bindings only.

    python -m sawtooth.ingest.sampler --interval 0.1 --out DIR [--gpus 0,1] [--seconds N] [-- COMMAND …]

A session is a folder
---------------------
``DIR/<session>/meta.json`` is written once, at the start, and never changes: format version, session id, host, boot id,
sampler pid, interval, columns, devices with UUID and capabilities, the wall and monotonic clock at the start, a seal (``sawtooth.ingest.seals``).
``DIR/<session>/samples-0001.jsonl``, ``samples-0002.jsonl`` … are append-only segments. Each holds at most 8 MB or ten
minutes; none is ever renamed, truncated or rewritten. A restarted sampler starts a new session. Session ids match
``[A-Za-z0-9._-]{1,80}`` and do not begin with a dot.

A record is a line: a JSON object whose last key is ``crc``, eight hex digits of the CRC-32 of the line's bytes before
``,"crc":"``. A line without newline, or whose CRC does not match, is skipped by every reader, for ever. Keys:

    k   head | tick | event | end
    q   sequence number in the session, from 0, over all records; a missing one is a lost record
    m   monotonic nanoseconds (the kind that counts suspended time, where the system has one)
    w   wall nanoseconds since 1970 (UTC)
    head   first line of each segment: segment, and of meta.json: v, session, host, boot, versions, name, interval_ns, columns, devices.
           So any segment, or several one after the other, can be read as a file of their own
    tick   g: one row per device, in the order of ``columns``, null where not measured; an absent device's row is null
           s: driver buffers: [device, column, [time_us …], [value …]] with the driver's own wall-clock microseconds
           h: once a second, of the host: column of host_samples: value
           p: once in ten seconds: [device, pid, memory bytes or null, process name or null]
           n: transient failures: [device, column, NVML code]
    event  e: gap (from_m, to_m, reason) | gpu_lost | gpu_back | driver_lost | driver_back | hung | heartbeat | slowed |
           overhead (cpu_share of one core, nvml_ms_per_gpu_tick, late_ticks,
           costs of the first device: column: [milliseconds a call, seconds between calls]) | error, with device, code and reason where they apply
    end    reason: the session is whole

One ``write`` per tick survives the death of the sampler; an ``fsync`` each second limits a power cut to one second.

Push: how a session travels to a dashboard
------------------------------------------
The sampler dials out; nothing listens beside the training job. A session's identity there is its id; a byte's identity
is (session, segment, offset). All requests carry ``Authorization: Bearer TOKEN``; ids that do not match the pattern above are 404.

``GET /api/v1/live/<session>`` → 200 ``{"segments": {"0": 812, "1": 40960}}``: bytes held per segment; ``{"segments": {}}`` for a new one.
``POST /api/v1/live/<session>?segment=N&offset=K`` with the raw bytes from offset K on as the body (``application/octet-stream``, at most
1 MiB, ending at a line's end unless one line alone is longer) and ``X-Content-CRC32: <8 hex digits>``. Segment 0 is ``meta.json`` and comes first. The server, holding S bytes of the segment:

* offset == S: appends, syncs, answers 200 ``{"size": S + len(body)}``;
* offset + len(body) <= S: has it already, answers 200 ``{"size": S}`` and writes nothing (a repeated delivery);
* otherwise: 409 ``{"size": S}``, and the client goes on from S;
* CRC mismatch: 400; wrong token: 401; body too large: 413; disk full: 507. The client backs off from 1 to 60 s and tries again, except
  after 400, 401 and 413, which it reports and where it waits the full 60 s.

Replies carry ``received_ns`` and ``sent_ns`` (the server's wall clock); with the client's own two times they give the offset of the clocks, which
the client sends along as ``X-Clock-Offset-Ns`` (server minus client) on the next POST. A segment that is acknowledged whole may be deleted on the
sampler's side when the spool exceeds 512 MB, oldest first; nothing else is.
"""

FORMAT_VERSION = 1
