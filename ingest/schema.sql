-- The schema of a recording. It has facts only; no column depends on an interpretation.
-- Times are integer nanoseconds; they are Unix times if recording.clock = 'unix'. Intervals are half open,
-- [start_ns, start_ns + dur_ns). NULL means not recorded, never 0. Every *_id column is dense: 0 … n−1, in the order
-- of (start_ns, file order), so that a column read in id order can be indexed by id.

CREATE TABLE recording (
    id VARCHAR NOT NULL, schema_version INTEGER NOT NULL, tool_version VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    source_name VARCHAR NOT NULL, source_bytes BIGINT NOT NULL, event_count BIGINT NOT NULL,
    clock VARCHAR NOT NULL, base_time_ns BIGINT, first_ns BIGINT, last_ns BIGINT, truncated BOOLEAN NOT NULL,
    vendor VARCHAR, host VARCHAR, rank INTEGER, world_size INTEGER, backend VARCHAR, nccl_version VARCHAR, trace_id VARCHAR,
    torch_version VARCHAR, runtime_version VARCHAR, driver_version VARCHAR, profiler_version VARCHAR,
    record_shapes BOOLEAN, profile_memory BOOLEAN, with_stack BOOLEAN, with_modules BOOLEAN, with_flops BOOLEAN,
    metadata VARCHAR
);
COMMENT ON TABLE recording IS 'One row with the properties of this recording and of its source';
COMMENT ON COLUMN recording.id IS 'First 16 hex digits of the SHA-256 of the uncompressed source bytes';
COMMENT ON COLUMN recording.schema_version IS 'Version of the meaning of the columns. New columns do not change it; they are NULL in older recordings';
COMMENT ON COLUMN recording.tool_version IS 'Version of Sawtooth that wrote the file';
COMMENT ON COLUMN recording.kind IS 'trace, telemetry, marks, compile (a structured log of torch.compile) or memory (a snapshot of the CUDA allocator)';
COMMENT ON COLUMN recording.source_name IS 'File name of the source, without control characters';
COMMENT ON COLUMN recording.source_bytes IS 'Uncompressed size of the source in bytes';
COMMENT ON COLUMN recording.event_count IS 'Events (or samples) stored in any table of this recording';
COMMENT ON COLUMN recording.clock IS 'unix: times are absolute Unix nanoseconds; local: local times without a zone, as if they were UTC; unknown: times have an unknown origin';
COMMENT ON COLUMN recording.base_time_ns IS 'baseTimeNanoseconds of the trace, already added to every time';
COMMENT ON COLUMN recording.first_ns IS 'Earliest start of any stored event';
COMMENT ON COLUMN recording.last_ns IS 'Latest end of any stored event';
COMMENT ON COLUMN recording.truncated IS 'The source ended before its closing bracket; everything before that is stored';
COMMENT ON COLUMN recording.vendor IS 'Maker of the GPUs: nvidia, amd, intel, meta or huawei; NULL if the source does not contain it';
COMMENT ON COLUMN recording.host IS 'Host name, if the source contains it';
COMMENT ON COLUMN recording.rank IS 'Rank of the process in its distributed job';
COMMENT ON COLUMN recording.world_size IS 'Number of ranks of the distributed job';
COMMENT ON COLUMN recording.backend IS 'Distributed backend, such as nccl';
COMMENT ON COLUMN recording.nccl_version IS 'Version of NCCL or RCCL';
COMMENT ON COLUMN recording.trace_id IS 'trace_id of the profiler session';
COMMENT ON COLUMN recording.torch_version IS 'Version of PyTorch, if the source contains it';
COMMENT ON COLUMN recording.runtime_version IS 'CUDA or HIP runtime version';
COMMENT ON COLUMN recording.driver_version IS 'CUDA or HIP driver version';
COMMENT ON COLUMN recording.profiler_version IS 'CUPTI or roctracer version';
COMMENT ON COLUMN recording.record_shapes IS 'The profiler recorded input shapes and dtypes';
COMMENT ON COLUMN recording.profile_memory IS 'The profiler recorded allocations';
COMMENT ON COLUMN recording.with_stack IS 'The profiler recorded Python calls';
COMMENT ON COLUMN recording.with_modules IS 'The profiler recorded the module hierarchy';
COMMENT ON COLUMN recording.with_flops IS 'The profiler was asked for FLOPs';
COMMENT ON COLUMN recording.metadata IS 'Every other top-level value of the source, as JSON';

CREATE TABLE devices (
    device INTEGER NOT NULL, name VARCHAR, uuid VARCHAR, memory_bytes BIGINT, compute_major INTEGER, compute_minor INTEGER,
    sms INTEGER, warp_size INTEGER, max_threads_per_sm INTEGER, registers_per_sm INTEGER, shared_memory_per_sm_bytes BIGINT,
    driver VARCHAR
);
COMMENT ON TABLE devices IS 'GPUs that the source describes, used or not';
COMMENT ON COLUMN devices.device IS 'Ordinal of the GPU in its source';
COMMENT ON COLUMN devices.name IS 'Name of the GPU from the driver';
COMMENT ON COLUMN devices.uuid IS 'UUID, from telemetry or from a trace of Sawtooth''s recorder';
COMMENT ON COLUMN devices.memory_bytes IS 'Total device memory in bytes';
COMMENT ON COLUMN devices.compute_major IS 'Compute capability, major (ROCm: gfx major)';
COMMENT ON COLUMN devices.compute_minor IS 'Compute capability, minor';
COMMENT ON COLUMN devices.sms IS 'Streaming multiprocessors (AMD: compute units)';
COMMENT ON COLUMN devices.warp_size IS 'Threads per warp; 64 on most AMD data-centre GPUs';
COMMENT ON COLUMN devices.max_threads_per_sm IS 'Largest number of resident threads of one SM';
COMMENT ON COLUMN devices.registers_per_sm IS '32-bit registers of one SM';
COMMENT ON COLUMN devices.shared_memory_per_sm_bytes IS 'Shared memory of one SM in bytes';
COMMENT ON COLUMN devices.driver IS 'Driver version; only in telemetry';

CREATE TABLE names (name_id INTEGER NOT NULL, name VARCHAR NOT NULL);
COMMENT ON TABLE names IS 'Every distinct name of this recording once';
COMMENT ON COLUMN names.name_id IS 'Dense id in order of first appearance';
COMMENT ON COLUMN names.name IS 'The name as recorded';

CREATE TABLE threads (thread_id INTEGER NOT NULL, pid VARCHAR, tid VARCHAR, name VARCHAR, process_name VARCHAR);
COMMENT ON TABLE threads IS 'Host threads that appear in the trace';
COMMENT ON COLUMN threads.thread_id IS 'Dense id in order of first appearance';
COMMENT ON COLUMN threads.pid IS 'Process id as recorded';
COMMENT ON COLUMN threads.tid IS 'Thread id as recorded';
COMMENT ON COLUMN threads.name IS 'thread_name metadata';
COMMENT ON COLUMN threads.process_name IS 'process_name metadata';

CREATE TABLE signatures (signature_id INTEGER NOT NULL, input_dims VARCHAR, input_types VARCHAR, input_strides VARCHAR, concrete_inputs VARCHAR);
COMMENT ON TABLE signatures IS 'Distinct combinations of operator inputs, as JSON arrays';
COMMENT ON COLUMN signatures.signature_id IS 'Dense id in order of first appearance';
COMMENT ON COLUMN signatures.input_dims IS 'Input Dims: a list of shapes (a tensor list is a list of shapes)';
COMMENT ON COLUMN signatures.input_types IS 'Input type: a list of dtypes, with an empty string for an input that is not a tensor';
COMMENT ON COLUMN signatures.input_strides IS 'Input Strides';
COMMENT ON COLUMN signatures.concrete_inputs IS 'Concrete Inputs: scalars and lists as text';

CREATE TABLE cpu_ops (
    cpu_op_id BIGINT NOT NULL, kind VARCHAR NOT NULL, name_id INTEGER NOT NULL, thread_id INTEGER NOT NULL,
    start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL, parent_id BIGINT, depth INTEGER NOT NULL,
    external_id BIGINT, sequence_number BIGINT, forward_thread BIGINT, signature_id INTEGER, extra VARCHAR
);
COMMENT ON TABLE cpu_ops IS 'Operators and user annotations on host threads, nested';
COMMENT ON COLUMN cpu_ops.cpu_op_id IS 'Dense id in order of start (ties: longest first)';
COMMENT ON COLUMN cpu_ops.kind IS 'op or annotation';
COMMENT ON COLUMN cpu_ops.name_id IS 'names.name_id';
COMMENT ON COLUMN cpu_ops.thread_id IS 'threads.thread_id';
COMMENT ON COLUMN cpu_ops.start_ns IS 'Start';
COMMENT ON COLUMN cpu_ops.dur_ns IS 'Duration';
COMMENT ON COLUMN cpu_ops.parent_id IS 'Innermost operator or annotation of the same thread that encloses this one';
COMMENT ON COLUMN cpu_ops.depth IS 'Number of enclosing operators and annotations';
COMMENT ON COLUMN cpu_ops.external_id IS 'External id as recorded';
COMMENT ON COLUMN cpu_ops.sequence_number IS 'Autograd sequence number; a backward operator has the number of its forward operator';
COMMENT ON COLUMN cpu_ops.forward_thread IS 'Fwd thread id as recorded, of backward operators';
COMMENT ON COLUMN cpu_ops.signature_id IS 'signatures.signature_id, if shapes were recorded';
COMMENT ON COLUMN cpu_ops.extra IS 'Call stack, Module Hierarchy, kernel_backend and other useful arguments, as JSON';

CREATE TABLE runtime_calls (
    call_id BIGINT NOT NULL, name_id INTEGER NOT NULL, thread_id INTEGER NOT NULL, start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL,
    correlation BIGINT, cpu_op_id BIGINT, gpu_ops INTEGER NOT NULL
);
COMMENT ON TABLE runtime_calls IS 'CUDA or HIP runtime and driver calls of the host: launches, copies, synchronizations, allocations';
COMMENT ON COLUMN runtime_calls.call_id IS 'Dense id in order of start';
COMMENT ON COLUMN runtime_calls.name_id IS 'names.name_id';
COMMENT ON COLUMN runtime_calls.thread_id IS 'threads.thread_id';
COMMENT ON COLUMN runtime_calls.start_ns IS 'Start';
COMMENT ON COLUMN runtime_calls.dur_ns IS 'Duration';
COMMENT ON COLUMN runtime_calls.correlation IS 'Correlation id that GPU operations of this call share';
COMMENT ON COLUMN runtime_calls.cpu_op_id IS 'Innermost operator or annotation of the same thread that encloses the call';
COMMENT ON COLUMN runtime_calls.gpu_ops IS 'Number of GPU operations in this recording that the call launched; many for a graph launch';

CREATE TABLE gpu_ops (
    gpu_op_id BIGINT NOT NULL, kind VARCHAR NOT NULL, name_id INTEGER NOT NULL, device INTEGER NOT NULL, stream BIGINT NOT NULL,
    start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL, correlation BIGINT, call_id BIGINT, cpu_op_id BIGINT, external_id BIGINT,
    grid_x INTEGER, grid_y INTEGER, grid_z INTEGER, block_x INTEGER, block_y INTEGER, block_z INTEGER,
    registers_per_thread INTEGER, shared_memory_bytes BIGINT, blocks_per_sm DOUBLE, warps_per_sm DOUBLE, occupancy_pct DOUBLE,
    bytes BIGINT, graph_id BIGINT, graph_node_id BIGINT
);
COMMENT ON TABLE gpu_ops IS 'Kernels, copies and memory sets that ran on a GPU';
COMMENT ON COLUMN gpu_ops.gpu_op_id IS 'Dense id in order of start';
COMMENT ON COLUMN gpu_ops.kind IS 'kernel, memcpy or memset, as the profiler classified it';
COMMENT ON COLUMN gpu_ops.name_id IS 'names.name_id';
COMMENT ON COLUMN gpu_ops.device IS 'Device ordinal in this process';
COMMENT ON COLUMN gpu_ops.stream IS 'Stream id';
COMMENT ON COLUMN gpu_ops.start_ns IS 'Start on the device, in the time of the host''s clock';
COMMENT ON COLUMN gpu_ops.dur_ns IS 'Duration on the device; cut at the start of the stream''s next operation if they overlapped (diagnostics: overrun)';
COMMENT ON COLUMN gpu_ops.correlation IS 'Correlation id of the launching call';
COMMENT ON COLUMN gpu_ops.call_id IS 'runtime_calls.call_id of the launch; NULL if the launch is not in the trace';
COMMENT ON COLUMN gpu_ops.cpu_op_id IS 'Innermost operator or annotation around the launch';
COMMENT ON COLUMN gpu_ops.external_id IS 'External id as recorded';
COMMENT ON COLUMN gpu_ops.grid_x IS 'Grid size, x';
COMMENT ON COLUMN gpu_ops.grid_y IS 'Grid size, y';
COMMENT ON COLUMN gpu_ops.grid_z IS 'Grid size, z';
COMMENT ON COLUMN gpu_ops.block_x IS 'Block size, x';
COMMENT ON COLUMN gpu_ops.block_y IS 'Block size, y';
COMMENT ON COLUMN gpu_ops.block_z IS 'Block size, z';
COMMENT ON COLUMN gpu_ops.registers_per_thread IS 'Registers per thread';
COMMENT ON COLUMN gpu_ops.shared_memory_bytes IS 'Shared memory per block in bytes';
COMMENT ON COLUMN gpu_ops.blocks_per_sm IS 'Blocks of the grid per SM of the device';
COMMENT ON COLUMN gpu_ops.warps_per_sm IS 'Warps of the grid per SM of the device';
COMMENT ON COLUMN gpu_ops.occupancy_pct IS 'Estimated achieved occupancy in percent';
COMMENT ON COLUMN gpu_ops.bytes IS 'Bytes copied or set';
COMMENT ON COLUMN gpu_ops.graph_id IS 'CUDA graph of the operation';
COMMENT ON COLUMN gpu_ops.graph_node_id IS 'Node of that graph';

CREATE TABLE gpu_annotations (name_id INTEGER NOT NULL, device INTEGER NOT NULL, stream BIGINT NOT NULL, start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL);
COMMENT ON TABLE gpu_annotations IS 'User annotations as the profiler projected them onto GPU streams; they are not GPU work';
COMMENT ON COLUMN gpu_annotations.name_id IS 'names.name_id';
COMMENT ON COLUMN gpu_annotations.device IS 'Device ordinal';
COMMENT ON COLUMN gpu_annotations.stream IS 'Stream id';
COMMENT ON COLUMN gpu_annotations.start_ns IS 'Start';
COMMENT ON COLUMN gpu_annotations.dur_ns IS 'Duration';

CREATE TABLE graph_annotations (graph_id BIGINT, graph_node_id BIGINT NOT NULL, name_id INTEGER NOT NULL, backward BOOLEAN NOT NULL);
COMMENT ON TABLE graph_annotations IS 'Names of the nodes of a CUDA graph from its capture (torch.cuda.graph with enable_annotations); empty in older recordings';
COMMENT ON COLUMN graph_annotations.graph_id IS 'gpu_ops.graph_id';
COMMENT ON COLUMN graph_annotations.graph_node_id IS 'gpu_ops.graph_node_id';
COMMENT ON COLUMN graph_annotations.name_id IS 'names.name_id of the innermost mark, such as a module';
COMMENT ON COLUMN graph_annotations.backward IS 'The work is the backward pass of the marked code';

CREATE TABLE python_calls (
    python_call_id BIGINT NOT NULL, name_id INTEGER NOT NULL, thread_id INTEGER NOT NULL, start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL,
    parent_id BIGINT, module_id BIGINT
);
COMMENT ON TABLE python_calls IS 'Python function calls (with_stack=True), and waits in the operating system if Nsight Systems traced them; a separate table, because they are most of such a trace';
COMMENT ON COLUMN python_calls.python_call_id IS 'Dense id in order of start';
COMMENT ON COLUMN python_calls.name_id IS 'names.name_id, such as train.py(12): step, nn.Module: Linear_0 or read (operating system)';
COMMENT ON COLUMN python_calls.thread_id IS 'threads.thread_id';
COMMENT ON COLUMN python_calls.start_ns IS 'Start';
COMMENT ON COLUMN python_calls.dur_ns IS 'Duration';
COMMENT ON COLUMN python_calls.parent_id IS 'python_call_id of the calling function';
COMMENT ON COLUMN python_calls.module_id IS 'Python module id as recorded';

CREATE TABLE syncs (
    kind VARCHAR NOT NULL, device INTEGER, stream BIGINT, start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL, correlation BIGINT,
    wait_on_stream BIGINT, wait_on_event_correlation BIGINT
);
COMMENT ON TABLE syncs IS 'cuda_sync events: the stream or event that a synchronization waited for';
COMMENT ON COLUMN syncs.kind IS 'Stream Sync, Stream Wait Event, Event Sync or Context Sync';
COMMENT ON COLUMN syncs.device IS 'Device ordinal';
COMMENT ON COLUMN syncs.stream IS 'Stream that waited or was waited for';
COMMENT ON COLUMN syncs.start_ns IS 'Start';
COMMENT ON COLUMN syncs.dur_ns IS 'Duration';
COMMENT ON COLUMN syncs.correlation IS 'Correlation id of the synchronizing call';
COMMENT ON COLUMN syncs.wait_on_stream IS 'Stream waited for';
COMMENT ON COLUMN syncs.wait_on_event_correlation IS 'Correlation id of the event record waited for';

CREATE TABLE overheads (name_id INTEGER NOT NULL, thread_id INTEGER, start_ns BIGINT NOT NULL, dur_ns BIGINT NOT NULL);
COMMENT ON TABLE overheads IS 'Times in which the profiler (or a full queue) blocked the host';
COMMENT ON COLUMN overheads.name_id IS 'names.name_id: Activity Buffer Request, Buffer Flush, Instrumentation, Resource, Command Buffer Full, …';
COMMENT ON COLUMN overheads.thread_id IS 'threads.thread_id, if the event has a thread';
COMMENT ON COLUMN overheads.start_ns IS 'Start';
COMMENT ON COLUMN overheads.dur_ns IS 'Duration';

CREATE TABLE allocations (time_ns BIGINT NOT NULL, thread_id INTEGER, device_type INTEGER, device INTEGER, address BIGINT, bytes BIGINT, total_allocated_bytes BIGINT, total_reserved_bytes BIGINT);
COMMENT ON TABLE allocations IS 'Allocator events (profile_memory=True)';
COMMENT ON COLUMN allocations.time_ns IS 'Time of the event';
COMMENT ON COLUMN allocations.thread_id IS 'threads.thread_id';
COMMENT ON COLUMN allocations.device_type IS '0 CPU, 1 CUDA';
COMMENT ON COLUMN allocations.device IS 'Device ordinal';
COMMENT ON COLUMN allocations.address IS 'Address';
COMMENT ON COLUMN allocations.bytes IS 'Bytes allocated; negative if freed';
COMMENT ON COLUMN allocations.total_allocated_bytes IS 'Bytes allocated on the device after the event';
COMMENT ON COLUMN allocations.total_reserved_bytes IS 'Bytes reserved by the caching allocator after the event';

CREATE TABLE collectives (
    gpu_op_id BIGINT, cpu_op_id BIGINT, name VARCHAR, dtype VARCHAR, in_elements BIGINT, out_elements BIGINT,
    group_name VARCHAR, group_description VARCHAR, group_size INTEGER, group_ranks VARCHAR, sequence BIGINT, asynchronous BOOLEAN,
    peer_rank INTEGER
);
COMMENT ON TABLE collectives IS 'Arguments of collective communication, from the operator or the kernel';
COMMENT ON COLUMN collectives.gpu_op_id IS 'Kernel that has these arguments';
COMMENT ON COLUMN collectives.cpu_op_id IS 'Operator that has these arguments';
COMMENT ON COLUMN collectives.name IS 'Collective name, such as allreduce';
COMMENT ON COLUMN collectives.dtype IS 'Element type';
COMMENT ON COLUMN collectives.in_elements IS 'Elements of the input on this rank';
COMMENT ON COLUMN collectives.out_elements IS 'Elements of the output on this rank';
COMMENT ON COLUMN collectives.group_name IS 'Process group name';
COMMENT ON COLUMN collectives.group_description IS 'Process group description';
COMMENT ON COLUMN collectives.group_size IS 'Number of ranks of the group';
COMMENT ON COLUMN collectives.group_ranks IS 'Ranks of the group as recorded';
COMMENT ON COLUMN collectives.sequence IS 'Sequence number in the group';
COMMENT ON COLUMN collectives.asynchronous IS 'The collective was asynchronous';
COMMENT ON COLUMN collectives.peer_rank IS 'Rank to which a send goes, or from which a receive comes; NULL in older recordings';

CREATE TABLE samples (
    device INTEGER NOT NULL, time_ns BIGINT NOT NULL,
    -- sampled quantities
);
COMMENT ON TABLE samples IS 'Telemetry: one row per device and time; a value describes the window that ends at time_ns';
COMMENT ON COLUMN samples.device IS 'Ordinal of the GPU in this telemetry';
COMMENT ON COLUMN samples.time_ns IS 'End of the window that the values describe';
-- comments of sampled quantities

CREATE TABLE host_samples (
    time_ns BIGINT NOT NULL,
    -- host quantities
);
COMMENT ON TABLE host_samples IS 'Telemetry of the host: one row per time, about one per second; a value describes the window that ends at time_ns';
COMMENT ON COLUMN host_samples.time_ns IS 'End of the window that the values describe';
-- comments of host quantities

CREATE TABLE sample_gaps (device INTEGER NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL, reason VARCHAR);
COMMENT ON TABLE sample_gaps IS 'Times without samples: more than three periods between two samples, or a gap that the sampler recorded';
COMMENT ON COLUMN sample_gaps.device IS 'Ordinal of the GPU in this telemetry';
COMMENT ON COLUMN sample_gaps.start_ns IS 'Last sample before the gap';
COMMENT ON COLUMN sample_gaps.end_ns IS 'First sample after the gap';
COMMENT ON COLUMN sample_gaps.reason IS 'Reason, if the sampler recorded one';

CREATE TABLE step_marks (
    step BIGINT NOT NULL, end_ns BIGINT NOT NULL, phase VARCHAR NOT NULL, optimizer INTEGER NOT NULL, samples DOUBLE, tokens DOUBLE,
    site VARCHAR, wait_ns BIGINT, first_wait_ns BIGINT, loader_start_ns BIGINT
);
COMMENT ON TABLE step_marks IS 'Ends of the steps of a training loop, from marks in the loop, mostly outside the profile';
COMMENT ON COLUMN step_marks.step IS 'Index of the step, from 0, of its optimizer';
COMMENT ON COLUMN step_marks.end_ns IS 'Unix nanoseconds at which the step ended on the host';
COMMENT ON COLUMN step_marks.phase IS 'train, profile, recorder, eval or checkpoint';
COMMENT ON COLUMN step_marks.optimizer IS 'Number of the optimizer that stepped, in order of first appearance';
COMMENT ON COLUMN step_marks.samples IS 'Samples in the batch, if the loop recorded them';
COMMENT ON COLUMN step_marks.tokens IS 'Length of the batch in tokens, if the loop recorded it';
COMMENT ON COLUMN step_marks.site IS 'Lines of the program that called the step, innermost first, such as train.py:12 < train.py:40';
COMMENT ON COLUMN step_marks.wait_ns IS 'Time for which the loop waited for DataLoader batches since the mark before; NULL without a wait';
COMMENT ON COLUMN step_marks.first_wait_ns IS 'Part of wait_ns before an epoch''s first batch and after its last one; NULL without one';
COMMENT ON COLUMN step_marks.loader_start_ns IS 'Part of first_wait_ns in which the epoch''s iterator was made and its worker processes were started';

CREATE TABLE compile_events (
    kind VARCHAR NOT NULL, compile_id VARCHAR, time_ns BIGINT, dur_ns BIGINT, "function" VARCHAR, file VARCHAR, line INTEGER,
    reason VARCHAR, hint VARCHAR
);
COMMENT ON TABLE compile_events IS 'Events of torch.compile''s structured log (TORCH_TRACE); only in recordings of such logs';
COMMENT ON COLUMN compile_events.kind IS 'graph_break, recompile, compile or compile_backward';
COMMENT ON COLUMN compile_events.compile_id IS 'Number of the frame, and how often it was compiled before, such as 3/0; the same as the compiled region''s name in a trace';
COMMENT ON COLUMN compile_events.time_ns IS 'Start of a compilation; for other events, about the time at which they occurred';
COMMENT ON COLUMN compile_events.dur_ns IS 'Duration of the compilation';
COMMENT ON COLUMN compile_events."function" IS 'Function that was compiled';
COMMENT ON COLUMN compile_events.file IS 'File of the graph break, or of the function that was compiled';
COMMENT ON COLUMN compile_events.line IS 'Line of the graph break, or first line of the function';
COMMENT ON COLUMN compile_events.reason IS 'Reason for the graph break, the guard that failed, or the reason why the compilation failed';
COMMENT ON COLUMN compile_events.hint IS 'Dynamo''s advice on a graph break';

CREATE TABLE memory_stacks (stack_id INTEGER NOT NULL, frames VARCHAR NOT NULL);
COMMENT ON TABLE memory_stacks IS 'Distinct stacks of a memory snapshot; only recordings of snapshots have rows in the tables memory_…';
COMMENT ON COLUMN memory_stacks.stack_id IS 'Number of the stack, from 0';
COMMENT ON COLUMN memory_stacks.frames IS 'Frames of the stack as JSON, innermost first, each with name, filename and line';

CREATE TABLE memory_events (
    device INTEGER NOT NULL, place BIGINT NOT NULL, action VARCHAR NOT NULL, time_ns BIGINT, address BIGINT, bytes BIGINT NOT NULL,
    stream BIGINT, device_free_bytes BIGINT, stack_id INTEGER
);
COMMENT ON TABLE memory_events IS 'Actions of PyTorch''s CUDA allocator, from its history';
COMMENT ON COLUMN memory_events.device IS 'Ordinal of the GPU in the process';
COMMENT ON COLUMN memory_events.place IS 'Order of the events of a device, from 0';
COMMENT ON COLUMN memory_events.action IS 'alloc, free_requested, free_completed, segment_alloc, segment_free, oom, …';
COMMENT ON COLUMN memory_events.time_ns IS 'Unix nanoseconds, if the allocator recorded times';
COMMENT ON COLUMN memory_events.address IS 'Address of the block or the segment';
COMMENT ON COLUMN memory_events.bytes IS 'Requested size';
COMMENT ON COLUMN memory_events.stream IS 'CUDA stream';
COMMENT ON COLUMN memory_events.device_free_bytes IS 'Free memory of the GPU when an allocation failed';
COMMENT ON COLUMN memory_events.stack_id IS 'Stack of the call';

CREATE TABLE memory_blocks (
    device INTEGER NOT NULL, segment_address BIGINT NOT NULL, segment_bytes BIGINT NOT NULL, stream BIGINT, address BIGINT, bytes BIGINT,
    state VARCHAR, stack_id INTEGER
);
COMMENT ON TABLE memory_blocks IS 'Blocks of the allocator at the end of the history; a segment without blocks has one row without an address';
COMMENT ON COLUMN memory_blocks.device IS 'Ordinal of the GPU in the process';
COMMENT ON COLUMN memory_blocks.segment_address IS 'Address of the segment that the block is in';
COMMENT ON COLUMN memory_blocks.segment_bytes IS 'Size of the segment';
COMMENT ON COLUMN memory_blocks.stream IS 'CUDA stream of the segment';
COMMENT ON COLUMN memory_blocks.address IS 'Address of the block';
COMMENT ON COLUMN memory_blocks.bytes IS 'Size of the block';
COMMENT ON COLUMN memory_blocks.state IS 'active_allocated, active_pending_free, active_awaiting_free or inactive';
COMMENT ON COLUMN memory_blocks.stack_id IS 'Stack of the allocation';

CREATE TABLE memory_ranges (place BIGINT NOT NULL, device INTEGER NOT NULL, time_ns BIGINT NOT NULL, stage VARCHAR NOT NULL, name VARCHAR NOT NULL);
COMMENT ON TABLE memory_ranges IS 'Starts and ends of named ranges in a memory snapshot, such as FSDP''s modules';
COMMENT ON COLUMN memory_ranges.place IS 'Order in the snapshot, from 0';
COMMENT ON COLUMN memory_ranges.device IS 'Ordinal of the GPU in the process';
COMMENT ON COLUMN memory_ranges.time_ns IS 'Unix nanoseconds';
COMMENT ON COLUMN memory_ranges.stage IS 'START or END';
COMMENT ON COLUMN memory_ranges.name IS 'Name of the range';

CREATE TABLE diagnostics (key VARCHAR NOT NULL, severity VARCHAR NOT NULL, sentence VARCHAR NOT NULL, count BIGINT NOT NULL, example VARCHAR);
COMMENT ON TABLE diagnostics IS 'Problems that were found during the import';
COMMENT ON COLUMN diagnostics.key IS 'Stable key of the kind of problem';
COMMENT ON COLUMN diagnostics.severity IS 'info, data_loss or error';
COMMENT ON COLUMN diagnostics.sentence IS 'Description of the problem for users';
COMMENT ON COLUMN diagnostics.count IS 'Number of occurrences';
COMMENT ON COLUMN diagnostics.example IS 'An example, at most 200 characters';
