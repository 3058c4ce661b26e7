"""Recordings with and without a finding of each rule: one row per rule, by its slug.

Names are folders of tests/recordings and sample_traces, or hand-made traces (tests/support/sampled_loop.py).
``test_rule_texts.py`` fails if a rule has no row, no recording with a finding, or none without.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Recordings on which a rule has a finding or none, and the expected predictions.

    On ``first``, the rule's finding is the first one and at least a warning. On ``later``, another finding comes first, or the
    finding costs no step time. On ``without``, the rule has its data and no finding: these recordings differ only in what the
    rule looks for.

    ``measured`` has (before, after, largest relative error of the prediction against the stopwatch of the changed run).
    ``condition`` is for a rule whose threshold does not decide: another constant of its module, and a value of it just beyond
    the first recording with a finding.
    """

    first: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    measured: tuple[tuple[str, str, float], ...] = ()
    condition: tuple[str, object] | None = None

    @property
    def with_finding(self) -> tuple[str, ...]:
        return (*self.first, *self.later)


CASES = {
    "acting-in-the-loop": Case(
        first=("acts_before_each_update", "plays_in_rounds"),
        without=("evaluates_in_rounds", "evaluates_from_a_loader", "learns_only", "gpt_reads"),
    ),
    "accumulation-without-need": Case(
        first=("accumulates_four_with_free_memory", "accumulates_four_in_a_third_of_memory"),
        later=("accumulates_four",),
        without=("accumulates_four_in_most_memory", "accumulates_different_lengths", "trains_four_models", "updates_four_times", "one_micro_batch",
               "accumulates_four_and_reduces_each", "trained_above_twice", "accumulated_and_reduced", "ddp_balanced"),
    ),
    "accumulation-syncs": Case(first=("accumulated_and_reduced",), without=("accumulated_without_sync", "ddp_balanced")),
    "allocator-churn": Case(
        first=("empty_cache", "memory_in_pieces", "memory_is_full"), without=("memory_creep",), measured=(("empty_cache", "gpt_small", 0.10),)
    ),
    "anomaly-detection": Case(later=("tested_gradients",), without=("gpt_reads",)),
    "attention-fallback": Case(first=("math_backend", "padded_heads"), without=("attention_by_hand", "aligned_heads", "attention_sdpa")),
    "batches-in-bursts": Case(
        later=("loader_few_workers",),
        # In resnet_starved every step waits, so the loader is slow and not uneven.
        without=("loader_workers", "resnet_starved", "loader_restarts"),
    ),
    "bias-before-norm": Case(first=("bias_before_norm",), without=("bias_before_relu",)),
    "blocking-copies": Case(later=("features_apart",), without=("features_together", "copy_pageable")),
    "boolean-mask-waits": Case(first=("boolean_mask",), without=("gpt_reads",)),
    "casts": Case(later=("gpt_small",), without=("mlp_4096",)),
    "checkpoint-in-the-loop": Case(
        first=("checkpointing_io", "saves_few_tensors", "saves_two_of_eight_steps"), without=("gpt_reads", "reads_results_each_step"), measured=(("checkpointing_io", "gpt_small", 0.15),)
    ),
    "clipping-by-hand": Case(first=("clipped_one_by_one",), without=("norms_logged", "gpt_reads")),
    "convolution-search": Case(first=("conv_searches",), without=("conv_searches_off", "channels_first")),
    "copies-not-overlapped": Case(
        first=("copy_pinned",), without=("copy_prefetched",), measured=(("copy_pinned", "copy_prefetched", 0.05),)
    ),
    "data-loader-starves-gpu": Case(
        first=("loader_inline", "resnet_starved", "loader_few_workers", "loader_keeps_workers"),
        later=("loader_on_disk", "loader_on_full_cores", "loader_on_network", "loader_short_of_workers"),
        without=("loader_workers",),
        measured=(
            ("resnet_starved", "resnet_fixed", 0.05),
            ("loader_inline", "loader_workers", 0.30),
            ("loader_few_workers", "loader_workers", 0.05),
        ),
    ),
    "dense-table-gradients": Case(
        first=("few_rows_looked_up", "rows_looked_up_three_times", "triples"),
        later=("triples_foreach",),
        without=("many_rows_looked_up", "few_rows_of_a_tied_table", "few_rows_for_another_optimizer", "dlrm", "bert_30528"),
    ),
    "deterministic-algorithms": Case(first=("filled_memory",), without=("zeros_asked_for",)),
    "elementwise-chains": Case(later=("gpt_small",), without=("gpt_compiled",)),
    "evaluation-records-graph": Case(later=("eval_with_grad",), without=("eval_without_grad",), condition=("MIN_NUMBERED_SHARE", 1.1)),
    "expert-loops": Case(first=("expert_loop",), without=("equal_layers", "experts_batched")),
    "exposed-communication": Case(later=("reduced_after",), without=("ddp_balanced",)),
    "fp32-products": Case(
        first=("gpt_fp32", "gpt_tf32"),
        without=("gpt_small",),
        measured=(("gpt_fp32", "gpt_small", 0.15), ("gpt_tf32", "gpt_small", 0.10)),
    ),
    "fsdp-prefetch": Case(first=("weights_gathered_late",), without=("weights_gathered_ahead", "ddp_balanced")),
    "fsdp-reshard": Case(later=("weights_gathered_twice",), without=("weights_kept", "ddp_balanced")),
    "gradients-reduced-after": Case(
        first=("reduced_after",),
        later=("reduced_one_by_one_by_a_slow_host",),
        without=("reduced_within", "ddp_balanced"),
        measured=(("reduced_after", "reduced_within", 0.15),), condition=("MIN_ALL_REDUCES", 1e9)),
    "heads-one-by-one": Case(
        first=("heads_in_a_loop", "heads_with_own_projections", "heads_written_to_their_place", "fused_heads_in_a_loop", "sliced_heads_in_a_loop"),
        without=("attentions_of_layers", "two_attentions_joined", "attentions_summed", "layers_joined_at_the_end", "attention_math", "swin_math"),
    ),
    "host-link-saturated": Case(first=("link_full", "link_full_to_host"), later=("link_full_both_ways",), without=("link_half_used", "copy_pinned"), condition=("LINK_LIMIT_SHARE", 2.0)),
    "max-autotune": Case(
        later=("slow_compiled_products",), without=("quick_compiled_products", "autotuned_products", "gpt_compiled", "tables_compiled")
    ),
    "samples-one-by-one": Case(first=("called_sample_by_sample",), without=("layers_of_one_sample", "called_batch_by_batch")),
    "samples-prepared-alone": Case(first=("prepared_one_by_one",), without=("few_prepared", "states_one_by_one", "learned_one_by_one")),
    "scripted-code": Case(later=("scripted_functions",), without=("functions_called_forward",), condition=("GRAPH_NAMES", "^$")),
    "plans-for-new-shapes": Case(first=("attention_planned", "convolutions_planned"), without=("attention_planned_once", "two_lengths")),
    "pipeline-bubble": Case(
        first=("pipeline_of_unequal_stages",), later=("pipeline_of_two_microbatches",), without=("pipeline_of_eight_microbatches", "ddp_balanced")
    ),
    "fp8-products": Case(later=("mlp_4096",), without=("mm_fp8",)),
    "garbage-collection": Case(
        first=("collected_garbage",), without=("gpt_reads_stack",), measured=(("collected_garbage", "gpt_small", 0.15),)
    ),
    "graph-breaks": Case(later=("graph_breaks_20",), without=("graph_breaks_0", "recompiles"), condition=("MIN_PER_STEP", 1e9)),
    "host-swaps": Case(later=("swapping",), without=("loader_on_disk",), condition=("MIN_SWAP_BPS", 1e12)),
    "graph-capture": Case(first=("graph_captured",), without=("nothing_captured", "mlp_graph"), condition=("CAPTURE_CALLS", "^$")),
    "host-waits-for-gpu": Case(
        first=("gpt_reads", "gpt_reads_stack", "norms_read_before_update"),
        without=("gpt_no_reads",),
        measured=(("gpt_reads", "gpt_no_reads", 0.10), ("convnext_clip_by_hand", "convnext_clip", 0.05)),
    ),
    "launch-bound": Case(
        first=("mlp_eager", "small_batch"),
        without=("mlp_graph", "conv_searches", "gpt_compiled"),  # Telemetry sees no idle time in the last.
        measured=(("mlp_eager", "mlp_graph", 0.15),),
    ),
    "layout-conversions": Case(
        first=("channels_first",), without=("channels_last",), measured=(("channels_first", "channels_last", 0.25),)
    ),
    "loop-indexing": Case(first=("rows_in_a_loop",), without=("few_rows", "eval_with_grad")),
    "loss-head": Case(later=("vocab_50304",), without=("gpt_compiled", "reduced_after")),
    "memory-creep": Case(first=("memory_creep",), without=("gpt_stack_memory",), condition=("MIN_BYTES", 1e12)),
    "memory-headroom": Case(later=("gpt_reads",), without=("memory_full",), condition=("MAX_USED_SHARE", 0.0)),
    "memory-near-limit": Case(later=("memory_full",), without=("resnet_fixed", "optimizer_heavy"), condition=("MIN_USED_SHARE", 1.01)),
    "misaligned-dimensions": Case(
        first=("mlp_4093", "vocab_50257", "odd_model_width"),
        without=("mlp_4096", "vocab_50304"),
        measured=(("mlp_4093", "mlp_4096", 0.15), ("vocab_50257", "vocab_50304", 0.15)),
    ),
    "norms-one-by-one": Case(first=("norms_of_all",), later=("histograms_of_all", "gpt_no_reads"), measured=(("gpt_no_reads", "gpt_small", 0.05),), without=("norms_to_scale", "norms_read", "norms_in_the_loss", "norm_of_one", "clipped_one_by_one")),
    "operators-on-cpu": Case(first=("sorted_on_host",), without=("sorted_by_launches", "mask_from_cpu")),
    "optimizer-foreach": Case(
        first=("triples_foreach",), later=("adam_foreach", "adam_foreach_of_two_groups", "sgd_foreach_of_two_groups"), without=("gpt_small", "muon_foreach"), measured=(("triples_foreach", "triples", 0.05),)
    ),
    "optimizer-not-fused": Case(
        later=("adam_single", "adam_one_by_one"), without=("adam_fused", "own_optimizer"), measured=(("adam_single", "adam_fused", 0.35),)
    ),
    "optimizer-share": Case(later=("optimizer_heavy",), without=("memory_full",)),
    "pageable-copies": Case(
        first=("copy_pageable",), without=("copy_pinned",), measured=(("copy_pageable", "copy_pinned", 0.05),)
    ),
    "periodic-stalls": Case(
        later=("slow_every_fourth", "pauses", "pauses_to_save", "pauses_often_to_save"),
        without=("gpt_small", "pauses_to_evaluate", "waits_for_what_it_launched"),
    ),
    "power-cap": Case(later=("held_down_by_power", "gpt_tf32"), without=("some_power_cap", "held_down_by_heat")),
    "prefetch-queue-hid-the-loader": Case(
        first=("full_queue",),
        without=("loader_workers", "loader_few_workers", "loader_keeps_workers"),  # The profile of the last two shows the wait.
        condition=("loader_may_limit", lambda _context: False)),
    "profile-not-representative": Case(first=("checkpoint_unseen",), without=("checkpointing_io", "pauses_often_to_save"), condition=("hidden_time", lambda _context: None)),
    "profiler-distorts": Case(later=("memory_creep",), without=("reduced_within", "adam_fused", "gpt_small")),
    "python-between-operators": Case(
        first=("python_host", "slow_every_fourth"),
        without=("gpt_small",),
        measured=(("python_host", "gpt_small", 0.10), ("slow_every_fourth", "gpt_small", 0.05)),
    ),
    "recompilation": Case(first=("recompiles",), without=("gpt_compiled",)),
    "recomputation": Case(
        later=("recompute",), without=("gpt_small",), measured=(("recompute", "gpt_small", 0.05),)
    ),
    "recurrent-cells": Case(first=("lstm_cells",), without=("few_lstm_cells",)),
    "shapes-vary": Case(later=("two_lengths", "llama_lengths", "padded_batches"), without=("one_length", "conv_searches_off", "padded_on_a_slow_host"), condition=("differing_step_flops", lambda _context: None)),
    "slow-first-read": Case(
        first=("read_first",),
        later=("read_first_and_then_from_memory",),
        without=("read_first_of_more_than_memory", "read_first_and_again"),
        condition=("MIN_DISK_SHARE", 1.1),
    ),
    "small-batch": Case(later=("adam_fused",), without=("gpt_small", "conv_searches")),
    "small-collectives": Case(later=("reduced_after",), without=("ddp_balanced", "reduced_within")),
    "small-copies": Case(
        first=("many_small_copies", "features_apart"),
        without=("large_copies", "two_small_copies", "features_together"),
        measured=(("features_apart", "features_together", 0.15),),
    ),
    "steps-not-marked": Case(later=("gpt_no_steps",), without=("gpt_small",), condition=("PROFILER_MARKS", ("profiler_step", "annotation", "inferred", "none"))),
    "straggling-rank": Case(
        first=("ddp_straggler",), without=("ddp_balanced",), measured=(("ddp_straggler", "ddp_balanced", 0.15),)
    ),
    "unused-parameter-search": Case(
        later=("searches_unused_parameters",), without=("searches_nothing", "accumulated_without_sync", "ddp_balanced"), condition=("SEARCH_EVENT", "no_such_event")
    ),
    "tables-one-by-one": Case(
        first=("tables_looked_up_one_by_one", "sparse_tables_one_by_one", "sparse_tables_of_three_widths"),
        later=("dlrm",),
        without=("one_table_looked_up_often", "one_sparse_table_looked_up_often", "large_sparse_tables_of_three_widths", "few_tables_looked_up", "tables_of_two_widths", "tables_with_products_between", "triples"),
    ),
    "tensors-made-on-cpu": Case(
        first=("mask_from_cpu", "zeros_copied"),
        without=("mask_on_gpu", "zeros_filled_and_copied"),
        measured=(("mask_from_cpu", "mask_on_gpu", 0.15),),
    ),
    "tf32-off": Case(later=("gpt_fp32",), without=("gpt_tf32",), measured=(("gpt_fp32", "gpt_tf32", 0.20),)),
    "thermal-slowdown": Case(later=("held_down_by_heat",), without=("mm_fp8", "two_hot_samples", "held_down_by_power")),
    "unfused-activation": Case(later=("norm_by_hand",), without=("gpt_small",)),
    "unfused-attention": Case(
        first=("attention_math",), without=("attention_sdpa", "math_backend"), measured=(("attention_math", "attention_sdpa", 0.20),)
    ),
    "unfused-norm": Case(first=("norm_by_hand",), without=("gpt_small",)),
    "unused-gradients": Case(
        first=("trained_above", "trained_above_twice"),
        without=("all_trained", "never_cleared", "trained_below", "gathered", "gathered_of_experts", "cleared_rarely"),
    ),
    "weights-averaged-one-by-one": Case(
        first=("weights_averaged", "weights_averaged_by_lerp", "weights_averaged_in_a_copy", "weights_averaged_and_norms_logged"),
        without=("weights_updated_by_the_optimizer", "weights_averaged_at_once", "few_weights_averaged", "weights_decayed", "weights_moved_by_momentum",
               "gradients_changed_before_the_optimizer", "clipped_one_by_one", "adam_single"),
    ),
    "workers-start-again": Case(first=("loader_restarts",), without=("loader_keeps_workers",)),
    "workers-beyond-cores": Case(later=("loader_on_full_cores", "main_thread_without_a_core"), without=("loader_short_of_workers",), condition=("CORES_FULL_PCT", 101.0)),
    "zeroed-gradients": Case(
        later=("filled_gradients",),
        without=("zeroed_gradients", "gpt_small"),  # One fused fill of the first is 0.2 % of its step.
    ),
}  # fmt: skip
