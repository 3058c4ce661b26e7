"""GPU sampler: a small separate process next to a training job.

The sampler needs only the standard library and NVML's bindings. With psutil, it also samples the host.

    python -m sawtooth.ingest.sampler --interval 0.1 --out DIR [--gpus 0,1] [--seconds N] [-- COMMAND …]

A session is a folder
---------------------
``DIR/<session>/meta.json`` is written once, at the start, and never changes. It has the format version, session id, host, boot id,
PID of the sampler, interval, columns, devices with UUID and capabilities, wall and monotonic time at the start, and a checksum
(``sawtooth.ingest.json_checksum``).
``DIR/<session>/samples-0001.jsonl``, ``samples-0002.jsonl`` … are append-only segments. A new segment begins after 8 MB or ten
minutes. No segment is ever renamed, truncated or rewritten. A restarted sampler starts a new session. Session ids match
``[A-Za-z0-9._-]{1,80}`` and do not begin with a dot.

A record is a line with a JSON object. The last key is ``crc`` with eight hex digits, the CRC-32 of the line's bytes before ``,"crc":"``.
Readers always skip a line without a newline and a line with a wrong CRC. Keys:

    k   head | tick | event | pace | end
    q   sequence number in the session, from 0, over all records; a missing number means a lost record
    m   monotonic time, ns (from a clock that counts suspended time, if the system has one)
    w   wall-clock time, ns since 1970 (UTC)
    head   first line of each segment: segment, and from meta.json v, session, host, boot, versions, name, interval_ns, columns, devices,
           so that a segment, or several joined segments, can be read without meta.json
    tick   g: one row per device, in the order of ``columns``, null where not measured; a lost device's row is null
           s: driver buffers: [device, column, [time_us …], [value …]] with wall-clock microseconds from the driver
           h: once a second, values of the host by column of the table host_samples
           p: every ten seconds, the processes on the GPUs: [device, pid, memory bytes or null, process name or null]
           n: transient failures: [device, column, NVML code]
    event  e: gap (from_m, to_m, reason) | gpu_lost | gpu_back | driver_lost | driver_back | hung | heartbeat | slowed | capability |
           overhead (cpu_share of one core, nvml_ms_per_gpu_tick, late_ticks,
           costs of the first device: column: [milliseconds per call, seconds between calls]); with device, code and reason where they apply
    pace   step rate of the training, if `sawtooth run` started the sampler: step, p50_ms, p95_ms, per_s, samples, flops
    end    reason: the session is complete

Each tick is one ``write``, so that it survives if the sampler is killed. An ``fsync`` each second limits the loss at a power failure to
one second.

Push: how a session is sent to a dashboard
------------------------------------------
The sampler opens the connections, so nothing listens next to the training job. The dashboard identifies a session by its id, and a byte
by (session, segment, offset). All requests carry ``Authorization: Bearer TOKEN``. Ids that do not match the pattern above get a 404.

``GET /api/v1/live/<session>`` → 200 ``{"segments": {"0": 812, "1": 40960}}``: the bytes that the server has, by segment; ``{}`` for a new
session.
``POST /api/v1/live/<session>?segment=N&offset=K`` with the raw bytes from offset K on as the body (``application/octet-stream``, at most
1 MiB, ending at the end of a line unless a single line is longer) and ``X-Content-CRC32: <8 hex digits>``. Segment 0 is ``meta.json`` and
comes first. If the server has S bytes of the segment:

* offset == S: it appends, syncs and answers 200 ``{"size": S + len(body)}``;
* offset + len(body) <= S: it has these bytes already, answers 200 ``{"size": S}`` and writes nothing (a repeated delivery);
* otherwise: it answers 409 ``{"size": S}``, and the client continues from S;
* CRC mismatch: 400; wrong token: 401; body too large: 413; disk full: 507. After an error, the client waits 1 s and tries again. The wait
  doubles with each further error, up to 60 s. After 400, 401, 403, 404 and 413 the client waits 60 s at once.

Replies contain ``received_ns`` and ``sent_ns`` (the server's wall clock). From these and the client's two times, the client computes the
offset between the clocks, and sends the offset as ``X-Clock-Offset-Ns`` (server minus client) on the next POST.
If the local copy exceeds 512 MB, the sampler deletes fully acknowledged segments, oldest first, and nothing else.
"""

FORMAT_VERSION = 1
