-- Results of the analysis of one trace. This is a cache: it is rebuilt if it is missing or outdated. Times are absolute integer
-- nanoseconds as in the recording. `device` is the ordinal of the GPU in the recording.

CREATE TABLE facts (key VARCHAR NOT NULL, value VARCHAR NOT NULL);
COMMENT ON TABLE facts IS 'Single values as JSON: step source, linked/carried-over/orphan counts, replay quality, estimates, trust notes';
COMMENT ON COLUMN facts.key IS 'Name of the value';
COMMENT ON COLUMN facts.value IS 'The value as JSON';

CREATE TABLE steps (
    device INTEGER NOT NULL, step INTEGER NOT NULL, name VARCHAR NOT NULL, cycle INTEGER NOT NULL,
    host_start_ns BIGINT NOT NULL, host_end_ns BIGINT NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL,
    counted BOOLEAN NOT NULL, excluded_because VARCHAR, gpu_ops BIGINT NOT NULL, lost BIGINT NOT NULL, outlier BOOLEAN NOT NULL
);
COMMENT ON TABLE steps IS 'Steps on the device''s own clock';
COMMENT ON COLUMN steps.device IS 'Device ordinal';
COMMENT ON COLUMN steps.step IS 'Position among the steps of the device, from 0';
COMMENT ON COLUMN steps.name IS 'Name of the annotation that marks the step';
COMMENT ON COLUMN steps.cycle IS 'Number of the step''s profiling cycle, from 0';
COMMENT ON COLUMN steps.host_start_ns IS 'Start of the step on the host';
COMMENT ON COLUMN steps.host_end_ns IS 'End of the step on the host';
COMMENT ON COLUMN steps.start_ns IS 'Start on the device, which is the end of the previous step';
COMMENT ON COLUMN steps.end_ns IS 'End on the device: end of its last GPU operation, or of the previous step if that is later';
COMMENT ON COLUMN steps.counted IS 'The step belongs to the steady window';
COMMENT ON COLUMN steps.excluded_because IS 'Why a step is not counted';
COMMENT ON COLUMN steps.gpu_ops IS 'GPU operations launched in the step';
COMMENT ON COLUMN steps.lost IS 'Launches of the step whose GPU record the profiler lost';
COMMENT ON COLUMN steps.outlier IS 'The step is counted, but far slower than the other counted steps';

CREATE TABLE windows (device INTEGER NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL);
COMMENT ON TABLE windows IS 'The steady window: one interval per profiling cycle';
COMMENT ON COLUMN windows.device IS 'Device ordinal';
COMMENT ON COLUMN windows.start_ns IS 'Start';
COMMENT ON COLUMN windows.end_ns IS 'End';

CREATE TABLE segments (device INTEGER NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL, owner VARCHAR NOT NULL);
COMMENT ON TABLE segments IS 'The owner of every nanosecond from the first to the last GPU operation; neighbours with one owner are merged';
COMMENT ON COLUMN segments.device IS 'Device ordinal';
COMMENT ON COLUMN segments.start_ns IS 'Start';
COMMENT ON COLUMN segments.end_ns IS 'End';
COMMENT ON COLUMN segments.owner IS 'tensor_core_compute, other_compute, memset, exposed_comm, exposed_memcpy or idle';

CREATE TABLE gaps (
    gap BIGINT NOT NULL, device INTEGER NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL, owner VARCHAR NOT NULL,
    cause VARCHAR NOT NULL, phase VARCHAR NOT NULL, confidence VARCHAR NOT NULL, step INTEGER,
    next_gpu_op_id BIGINT, cpu_op_id BIGINT, call_id BIGINT, python_call_id BIGINT, evidence VARCHAR
);
COMMENT ON TABLE gaps IS 'Lost time of the steady window (idle, exposed copies, exposed communication), cut where the cause changes';
COMMENT ON COLUMN gaps.gap IS 'Number of the gap that contains the piece';
COMMENT ON COLUMN gaps.device IS 'Device ordinal';
COMMENT ON COLUMN gaps.start_ns IS 'Start of the piece';
COMMENT ON COLUMN gaps.end_ns IS 'End of the piece';
COMMENT ON COLUMN gaps.owner IS 'exposed_comm, exposed_memcpy or idle';
COMMENT ON COLUMN gaps.cause IS 'Key of the cause of the lost time; the Reference screen describes each cause';
COMMENT ON COLUMN gaps.phase IS 'input, forward, backward, optimizer, checkpoint or other';
COMMENT ON COLUMN gaps.confidence IS 'high, medium or low';
COMMENT ON COLUMN gaps.step IS 'steps.step that contains the start of the piece';
COMMENT ON COLUMN gaps.next_gpu_op_id IS 'GPU operation that ended the gap';
COMMENT ON COLUMN gaps.cpu_op_id IS 'Operator that the host ran during the piece';
COMMENT ON COLUMN gaps.call_id IS 'Runtime call that the host ran during the piece';
COMMENT ON COLUMN gaps.python_call_id IS 'Innermost Python call that the host ran during the piece';
COMMENT ON COLUMN gaps.evidence IS 'One sentence with the evidence for the cause';

CREATE TABLE causes (device INTEGER NOT NULL, owner VARCHAR NOT NULL, cause VARCHAR, ns BIGINT NOT NULL, unprofiled_ns_per_step DOUBLE, loses_ns_per_step DOUBLE);
COMMENT ON TABLE causes IS 'The ledger: owners and causes over the steady window, as recorded and as estimated without the profiler';
COMMENT ON COLUMN causes.device IS 'Device ordinal';
COMMENT ON COLUMN causes.owner IS 'Owner of the time';
COMMENT ON COLUMN causes.cause IS 'Cause of lost time, NULL for useful time';
COMMENT ON COLUMN causes.ns IS 'Nanoseconds of the steady window, as recorded';
COMMENT ON COLUMN causes.unprofiled_ns_per_step IS 'Nanoseconds per step in the replay without the profiler''s cost; NULL where there is no replay';
COMMENT ON COLUMN causes.loses_ns_per_step IS 'Nanoseconds per step that removing the cause saves, by replays without the profiler''s cost; NULL if no replay can remove it';

CREATE TABLE kernel_classes (name_id INTEGER NOT NULL, cpu_op_name_id INTEGER, signature_id INTEGER, category VARCHAR NOT NULL, tensor_cores VARCHAR NOT NULL, owner VARCHAR NOT NULL, reason VARCHAR NOT NULL);
COMMENT ON TABLE kernel_classes IS 'Category, tensor-core use and owner of each distinct (kernel, operator, signature)';
COMMENT ON COLUMN kernel_classes.name_id IS 'Kernel name';
COMMENT ON COLUMN kernel_classes.cpu_op_name_id IS 'Operator that launched it';
COMMENT ON COLUMN kernel_classes.signature_id IS 'Inputs of that operator';
COMMENT ON COLUMN kernel_classes.category IS 'gemm, conv, attention, communication, elementwise, …';
COMMENT ON COLUMN kernel_classes.tensor_cores IS 'yes, likely, no or unknown';
COMMENT ON COLUMN kernel_classes.owner IS 'Owner of its time where it runs alone, as in segments.owner';
COMMENT ON COLUMN kernel_classes.reason IS 'The rule that decided the tensor-core use';

CREATE TABLE owner_exceptions (gpu_op_id BIGINT NOT NULL, owner VARCHAR NOT NULL);
COMMENT ON TABLE owner_exceptions IS 'GPU operations whose owner is not the alphabetically first owner of their name in kernel_classes; mostly none';
COMMENT ON COLUMN owner_exceptions.gpu_op_id IS 'gpu_ops.gpu_op_id';
COMMENT ON COLUMN owner_exceptions.owner IS 'Its owner';

CREATE TABLE gpu_op_steps (gpu_op_id BIGINT NOT NULL, step INTEGER, status VARCHAR NOT NULL, category VARCHAR NOT NULL, tensor_cores VARCHAR NOT NULL, flop_op_id BIGINT, module INTEGER);
COMMENT ON TABLE gpu_op_steps IS 'Step, class and module of each GPU operation';
COMMENT ON COLUMN gpu_op_steps.gpu_op_id IS 'gpu_ops.gpu_op_id, dense';
COMMENT ON COLUMN gpu_op_steps.step IS 'Step that launched it; NULL outside steps';
COMMENT ON COLUMN gpu_op_steps.status IS 'linked, carried_over or orphan';
COMMENT ON COLUMN gpu_op_steps.category IS 'Category';
COMMENT ON COLUMN gpu_op_steps.tensor_cores IS 'yes, likely, no or unknown';
COMMENT ON COLUMN gpu_op_steps.flop_op_id IS 'cpu_op_id of the enclosing operator whose FLOPs are counted';
COMMENT ON COLUMN gpu_op_steps.module IS 'modules.module that caused it; NULL outside every nn.Module, and if modules were not recorded';

CREATE TABLE kernels (
    device INTEGER NOT NULL, name_id INTEGER NOT NULL, kind VARCHAR NOT NULL, category VARCHAR NOT NULL, tensor_cores VARCHAR NOT NULL,
    launches BIGINT NOT NULL, total_ns BIGINT NOT NULL, min_ns BIGINT NOT NULL, median_ns DOUBLE NOT NULL, max_ns BIGINT NOT NULL,
    mean_blocks_per_sm DOUBLE, mean_occupancy_pct DOUBLE, sm_efficiency_ns DOUBLE, bytes BIGINT, occupancy_unseen_ns BIGINT
);
COMMENT ON TABLE kernels IS 'GPU operations by name and class inside the steady window (sums over operations, clipped to the window)';
COMMENT ON COLUMN kernels.device IS 'Device ordinal';
COMMENT ON COLUMN kernels.name_id IS 'names.name_id';
COMMENT ON COLUMN kernels.kind IS 'kernel, memcpy or memset';
COMMENT ON COLUMN kernels.category IS 'Category';
COMMENT ON COLUMN kernels.tensor_cores IS 'Tensor-core use: yes, likely, no or unknown';
COMMENT ON COLUMN kernels.launches IS 'Operations that start in the window';
COMMENT ON COLUMN kernels.total_ns IS 'Sum of durations';
COMMENT ON COLUMN kernels.min_ns IS 'Shortest';
COMMENT ON COLUMN kernels.median_ns IS 'Median';
COMMENT ON COLUMN kernels.max_ns IS 'Longest';
COMMENT ON COLUMN kernels.mean_blocks_per_sm IS 'Duration-weighted mean of blocks per SM';
COMMENT ON COLUMN kernels.occupancy_unseen_ns IS 'Time of kernels whose occupancy the profiler could not estimate: it is recorded as 0, with at least one warp per SM';
COMMENT ON COLUMN kernels.mean_occupancy_pct IS 'Duration-weighted mean of the estimated occupancy';
COMMENT ON COLUMN kernels.sm_efficiency_ns IS 'Sum of min(blocks per SM, 1) × duration, as the TensorBoard plugin weighs SM efficiency; NULL where not recorded';
COMMENT ON COLUMN kernels.bytes IS 'Bytes copied or set';

CREATE TABLE operators (
    device INTEGER NOT NULL, name_id INTEGER NOT NULL, signature_id INTEGER, calls BIGINT NOT NULL, gpu_calls BIGINT NOT NULL, host_self_ns BIGINT NOT NULL, host_total_ns BIGINT NOT NULL,
    gpu_self_ns BIGINT NOT NULL, gpu_total_ns BIGINT NOT NULL, kernels BIGINT NOT NULL, tensor_core_ns BIGINT NOT NULL, flops DOUBLE
);
COMMENT ON TABLE operators IS 'Operators by name and input shapes, of the counted steps';
COMMENT ON COLUMN operators.device IS 'Device its kernels ran on; the trace''s first device for operators without kernels';
COMMENT ON COLUMN operators.name_id IS 'names.name_id';
COMMENT ON COLUMN operators.signature_id IS 'signatures.signature_id';
COMMENT ON COLUMN operators.calls IS 'Calls';
COMMENT ON COLUMN operators.gpu_calls IS 'Calls that launched GPU operations, directly or in child operators';
COMMENT ON COLUMN operators.host_self_ns IS 'Host time outside child operators';
COMMENT ON COLUMN operators.host_total_ns IS 'Host time';
COMMENT ON COLUMN operators.gpu_self_ns IS 'Sum of GPU operations launched by the operator itself';
COMMENT ON COLUMN operators.gpu_total_ns IS 'Sum of GPU operations launched by it and its children';
COMMENT ON COLUMN operators.kernels IS 'GPU operations launched by the operator itself';
COMMENT ON COLUMN operators.tensor_core_ns IS 'Part of gpu_self_ns in kernels that use tensor cores (yes or likely)';
COMMENT ON COLUMN operators.flops IS 'FLOPs of the calls that launched GPU operations; NULL if the operator''s FLOPs are not counted or its shapes are unknown';

CREATE TABLE modules (
    device INTEGER NOT NULL, module INTEGER, parent INTEGER, name_id INTEGER, depth INTEGER NOT NULL,
    calls BIGINT, host_ns BIGINT, total_host_ns BIGINT, forward_ns BIGINT NOT NULL, backward_ns BIGINT NOT NULL,
    total_forward_ns BIGINT NOT NULL, total_backward_ns BIGINT NOT NULL, kernels BIGINT NOT NULL, total_kernels BIGINT NOT NULL,
    tensor_core_ns BIGINT NOT NULL, total_tensor_core_ns BIGINT NOT NULL, flops DOUBLE NOT NULL, total_flops DOUBLE NOT NULL
);
COMMENT ON TABLE modules IS 'Every nn.Module by its place in the tree of calls, and the names of kernels in CUDA graphs, over the counted steps. One row without a module is the work outside modules. Empty if the trace has neither';
COMMENT ON COLUMN modules.device IS 'Device ordinal';
COMMENT ON COLUMN modules.module IS 'Dense id, callers before callees in order of the first call; NULL for work outside every module';
COMMENT ON COLUMN modules.parent IS 'Module that calls this module';
COMMENT ON COLUMN modules.name_id IS 'names.name_id, such as nn.Module: Linear_0';
COMMENT ON COLUMN modules.depth IS 'Number of modules above it';
COMMENT ON COLUMN modules.calls IS 'Calls';
COMMENT ON COLUMN modules.host_ns IS 'Host time of its calls without the modules they call';
COMMENT ON COLUMN modules.total_host_ns IS 'Host time of its calls';
COMMENT ON COLUMN modules.forward_ns IS 'Sum of GPU operations launched in its own forward; outside modules: everything but backward';
COMMENT ON COLUMN modules.backward_ns IS 'Sum of GPU operations launched by the backward of its own operators';
COMMENT ON COLUMN modules.total_forward_ns IS 'The same with the modules inside it';
COMMENT ON COLUMN modules.total_backward_ns IS 'The same with the modules inside it';
COMMENT ON COLUMN modules.kernels IS 'GPU operations of its own, forward and backward';
COMMENT ON COLUMN modules.total_kernels IS 'The same with the modules inside it';
COMMENT ON COLUMN modules.tensor_core_ns IS 'Part of forward_ns + backward_ns in kernels that use tensor cores (yes or likely)';
COMMENT ON COLUMN modules.total_tensor_core_ns IS 'The same with the modules inside it';
COMMENT ON COLUMN modules.flops IS 'FLOPs executed by its own counted operators whose shapes are known';
COMMENT ON COLUMN modules.total_flops IS 'The same with the modules inside it';

CREATE TABLE replays (kind VARCHAR NOT NULL, problem BLOB NOT NULL);
COMMENT ON TABLE replays IS 'The trace as a replay, which predictions change and run again';
COMMENT ON COLUMN replays.kind IS 'unprofiled: without the profiler''s cost; unexplained: the same, but the replay does not reproduce the trace';
COMMENT ON COLUMN replays.problem IS 'Compressed numpy arrays, see analysis/replay/store.py';

CREATE TABLE python_depths (python_call_id BIGINT NOT NULL, depth USMALLINT NOT NULL);
COMMENT ON TABLE python_depths IS 'How deep each Python call is nested';
COMMENT ON COLUMN python_depths.python_call_id IS 'python_calls.python_call_id, dense';
COMMENT ON COLUMN python_depths.depth IS 'Number of Python calls of its thread that enclose it';

-- Sums that only screens read, by SELECTs of layout.py. For a large recording they are stored in a second file (screen_sums.py).

CREATE VIEW call_kinds AS {call_kinds};
COMMENT ON VIEW call_kinds IS 'What each runtime call does, by its name';
COMMENT ON COLUMN call_kinds.name_id IS 'names.name_id';
COMMENT ON COLUMN call_kinds.kind IS 'sync, allocator, copy, launch or call';

CREATE VIEW host_lanes AS {host_lanes};
COMMENT ON VIEW host_lanes IS 'The host''s annotations, outermost operators and runtime calls';
COMMENT ON COLUMN host_lanes.lane IS 'threads.thread_id × 3, + 0 for annotations, 1 for operators, 2 for runtime calls';
COMMENT ON COLUMN host_lanes.kind IS 'annotation, op, sync, allocator, copy, launch or call';
COMMENT ON COLUMN host_lanes.name_id IS 'names.name_id';
COMMENT ON COLUMN host_lanes.start_ns IS 'Start';
COMMENT ON COLUMN host_lanes.dur_ns IS 'Duration';

CREATE VIEW lane_sums AS {lane_sums};
COMMENT ON VIEW lane_sums IS 'Slices and pieces of time shorter than a cell (a power of two in ns), summed by the cell in which they start, for wide views of the timeline';
COMMENT ON COLUMN lane_sums.source IS 'gpu, operators, calls, python, gaps or segments';
COMMENT ON COLUMN lane_sums.device IS 'Device ordinal; NULL for the host';
COMMENT ON COLUMN lane_sums.lane IS 'Stream of the GPU, threads.thread_id of the host; 0 for gaps and segments';
COMMENT ON COLUMN lane_sums.depth IS 'Number of slices of the same source and lane that enclose these';
COMMENT ON COLUMN lane_sums.kind IS 'Owner class of GPU operations; op, annotation, call_kinds.kind or python; gaps.cause or segments.owner';
COMMENT ON COLUMN lane_sums.owner IS 'Owner of gaps and segments; NULL for slices';
COMMENT ON COLUMN lane_sums.cell IS 'Position of the cell, from 0 at the recording''s start';
COMMENT ON COLUMN lane_sums.busy_ns IS 'Sum of durations';
COMMENT ON COLUMN lane_sums.operations IS 'Number of slices or pieces';

CREATE VIEW long_slices AS {long_slices};
COMMENT ON VIEW long_slices IS 'Slices and pieces of time that are at least as long as a cell of lane_sums';
COMMENT ON COLUMN long_slices.source IS 'gpu, operators, calls, python, gaps or segments';
COMMENT ON COLUMN long_slices.id IS 'gpu_op_id, cpu_op_id, call_id or python_call_id; 0 for gaps and segments';
COMMENT ON COLUMN long_slices.device IS 'Device ordinal; NULL for the host';
COMMENT ON COLUMN long_slices.lane IS 'Stream of the GPU, threads.thread_id of the host; 0 for gaps and segments';
COMMENT ON COLUMN long_slices.depth IS 'Number of slices of the same source and lane that enclose it';
COMMENT ON COLUMN long_slices.kind IS 'Owner class of GPU operations; op, annotation, call_kinds.kind or python; gaps.cause or segments.owner';
COMMENT ON COLUMN long_slices.name_id IS 'names.name_id; NULL for gaps and segments';
COMMENT ON COLUMN long_slices.start_ns IS 'Start';
COMMENT ON COLUMN long_slices.dur_ns IS 'Duration';
COMMENT ON COLUMN long_slices.owner IS 'Owner of gaps and segments; NULL for slices';

CREATE VIEW name_sums AS {name_sums};
COMMENT ON VIEW name_sums IS 'Operations shorter than a cell, a 512th to a 256th of the recording, summed by name and by the cell in which they start';
COMMENT ON COLUMN name_sums.source IS 'gpu or host';
COMMENT ON COLUMN name_sums.device IS 'Device ordinal; NULL for the host';
COMMENT ON COLUMN name_sums.name_id IS 'names.name_id';
COMMENT ON COLUMN name_sums.kind IS 'Owner class of GPU operations; host_lanes.kind of the host';
COMMENT ON COLUMN name_sums.cell IS 'Position of the cell, from 0 at the recording''s start';
COMMENT ON COLUMN name_sums.busy_ns IS 'Sum of durations';
COMMENT ON COLUMN name_sums.operations IS 'Number of operations';
COMMENT ON COLUMN name_sums.longest_ns IS 'Longest of them';

CREATE VIEW named_in_graphs AS
    SELECT m.device, m.module, m.name_id FROM modules m JOIN names n USING (name_id) WHERE NOT starts_with(n.name, 'nn.Module: ');
COMMENT ON VIEW named_in_graphs IS 'The rows of modules that are names of kernels in CUDA graphs; their operators are not recorded';
COMMENT ON COLUMN named_in_graphs.device IS 'Device ordinal';
COMMENT ON COLUMN named_in_graphs.module IS 'modules.module';
COMMENT ON COLUMN named_in_graphs.name_id IS 'names.name_id of the name';

CREATE VIEW launched AS {launched};
COMMENT ON VIEW launched IS 'GPU operations inside the steady window by the operator that launched them, and again by operator and input shapes';
COMMENT ON COLUMN launched.device IS 'Device ordinal';
COMMENT ON COLUMN launched.by_shape IS 'True if the row is for an operator with one set of shapes; false if it is for the operator with all shapes';
COMMENT ON COLUMN launched.name_id IS 'names.name_id of the operator; NULL if it is not known';
COMMENT ON COLUMN launched.input_dims IS 'Its input shapes';
COMMENT ON COLUMN launched.category IS 'Category, or several';
COMMENT ON COLUMN launched.tensor_cores IS 'Tensor-core use, or mixed';
COMMENT ON COLUMN launched.launches IS 'Operations that start in the window';
COMMENT ON COLUMN launched.total_ns IS 'Sum of durations, clipped to the window';
COMMENT ON COLUMN launched.min_ns IS 'Shortest';
COMMENT ON COLUMN launched.median_ns IS 'Median';
COMMENT ON COLUMN launched.max_ns IS 'Longest';
COMMENT ON COLUMN launched.tensor_core_ns IS 'Part of total_ns in kernels that use tensor cores (yes or likely)';

CREATE VIEW flop_work AS {flop_work};
COMMENT ON VIEW flop_work IS 'GPU operations of the counted steps (of the trace if it has none), by kernel and by the operator whose FLOPs they compute';
COMMENT ON COLUMN flop_work.device IS 'Device ordinal';
COMMENT ON COLUMN flop_work.name_id IS 'names.name_id of the GPU operation';
COMMENT ON COLUMN flop_work.kind IS 'kernel, memcpy or memset';
COMMENT ON COLUMN flop_work.category IS 'Category';
COMMENT ON COLUMN flop_work.tensor_cores IS 'Tensor-core use: yes, likely, no or unknown';
COMMENT ON COLUMN flop_work.op_name_id IS 'names.name_id of the enclosing operator whose FLOPs are counted, else of the launching operator';
COMMENT ON COLUMN flop_work.signature_id IS 'Inputs of that operator';
COMMENT ON COLUMN flop_work.is_operator IS 'True for an operator, false for an annotation; NULL if neither is known';
COMMENT ON COLUMN flop_work.ns IS 'Sum of durations';
COMMENT ON COLUMN flop_work.launches IS 'Number of operations';

-- Joins that most queries need. These views also read the recording's tables, because both files are in the search path.

CREATE VIEW named_gpu_ops AS SELECT g.*, n.name FROM gpu_ops g JOIN names n USING (name_id);
COMMENT ON VIEW named_gpu_ops IS 'gpu_ops with their names';
COMMENT ON COLUMN named_gpu_ops.name IS 'The kernel''s, copy''s or memset''s name';

CREATE VIEW named_cpu_ops AS SELECT o.*, n.name FROM cpu_ops o JOIN names n USING (name_id);
COMMENT ON VIEW named_cpu_ops IS 'cpu_ops with their names';
COMMENT ON COLUMN named_cpu_ops.name IS 'The operator''s or annotation''s name';

CREATE VIEW named_runtime_calls AS SELECT c.*, n.name FROM runtime_calls c JOIN names n USING (name_id);
COMMENT ON VIEW named_runtime_calls IS 'runtime_calls with their names';
COMMENT ON COLUMN named_runtime_calls.name IS 'The called function';

CREATE VIEW named_python_calls AS SELECT p.*, n.name FROM python_calls p JOIN names n USING (name_id);
COMMENT ON VIEW named_python_calls IS 'python_calls with their names';
COMMENT ON COLUMN named_python_calls.name IS 'File, line and function, or nn.Module: and the module';

CREATE VIEW named_operators AS
    SELECT o.*, n.name, s.input_dims, s.input_types, s.concrete_inputs
    FROM operators o JOIN names n USING (name_id) LEFT JOIN signatures s USING (signature_id);
COMMENT ON VIEW named_operators IS 'operators with their names and inputs';
COMMENT ON COLUMN named_operators.name IS 'The operator''s name';

CREATE VIEW step_gpu_ops AS
    SELECT g.*, s.step, s.category, s.tensor_cores, s.flop_op_id, s.module, coalesce(t.counted, false) AS counted,
        coalesce(t.counted, false) OR NOT EXISTS (SELECT 1 FROM steps WHERE counted) AS summed
    FROM named_gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) LEFT JOIN steps t ON t.device = g.device AND t.step = s.step;
COMMENT ON VIEW step_gpu_ops IS 'gpu_ops with their names, the step that launched them and their class';
COMMENT ON COLUMN step_gpu_ops.counted IS 'A counted step launched the operation';
COMMENT ON COLUMN step_gpu_ops.summed IS 'Sums per step include the operation: a counted step launched it, or the trace has no counted step';

CREATE VIEW window_gpu_ops AS
    SELECT g.*, least(g.start_ns + g.dur_ns, w.end_ns) - greatest(g.start_ns, w.start_ns) AS ns_in_window,
        g.start_ns >= w.start_ns AND g.start_ns < w.end_ns AS starts_in_window
    FROM named_gpu_ops g JOIN windows w ON w.device = g.device AND g.start_ns < w.end_ns AND g.start_ns + g.dur_ns > w.start_ns;
COMMENT ON VIEW window_gpu_ops IS 'gpu_ops with their names that run inside the steady window; an operation in two intervals of the window has two rows';
COMMENT ON COLUMN window_gpu_ops.ns_in_window IS 'The part of the duration inside the window';
COMMENT ON COLUMN window_gpu_ops.starts_in_window IS 'The operation starts inside the window; only these count as launches';
