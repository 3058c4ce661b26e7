"""The recordings on which each rule fires or stays silent: one row per rule, by its slug.

Names are folders of tests/recordings and sample_traces, or hand-made ones (tests/support/sampled_loop.py).
``test_rule_texts.py`` walks the rules and fails where one has no row, nothing it fires on, or no near miss.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One recording on which a rule fires or does not, and what is expected of its finding.

    ``leads``: it is the first finding and at least a warning. ``beside``: it stands next to the first, or costs no step
    time.

    ``quiet`` are near misses: recordings that differ in what the rule looks for, on which it can speak and does not.
    ``measured`` holds (before, after, largest relative error of its prediction against the stopwatch of the run after
    the change).

    ``condition`` is a threshold of the rule's module and a value of it just beyond what the first firing case measures,
    of a rule whose threshold does not decide.
    """

    leads: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    measured: tuple[tuple[str, str, float], ...] = ()
    condition: tuple[str, object] | None = None

    @property
    def fires(self) -> tuple[str, ...]:
        return (*self.leads, *self.beside)


CASES = {
    "acting-in-the-loop": Case(
        leads=("acts_before_each_update", "plays_in_rounds"),
        quiet=("evaluates_in_rounds", "evaluates_from_a_loader", "learns_only", "gpt_reads"),
    ),
    "accumulation-without-need": Case(
        leads=("accumulates_four_with_free_memory", "accumulates_four_in_a_third_of_memory"),
        beside=("accumulates_four",),
        quiet=("accumulates_four_in_most_memory", "accumulates_different_lengths", "trains_four_models", "updates_four_times", "one_micro_batch",
               "accumulates_four_and_reduces_each", "trained_above_twice", "accumulated_and_reduced", "ddp_balanced"),
    ),
    "accumulation-syncs": Case(leads=("accumulated_and_reduced",), quiet=("accumulated_without_sync", "ddp_balanced")),
    "allocator-churn": Case(
        leads=("empty_cache", "memory_in_pieces", "memory_is_full"), quiet=("memory_creep",), measured=(("empty_cache", "gpt_small", 0.10),)
    ),
    "anomaly-detection": Case(beside=("tested_gradients",), quiet=("gpt_reads",)),
    "attention-fallback": Case(leads=("math_backend", "padded_heads"), quiet=("attention_by_hand", "aligned_heads", "attention_sdpa")),
    "batches-in-bursts": Case(
        beside=("loader_few_workers",),
        # In resnet_starved every step waits, so the loader is slow and not uneven.
        quiet=("loader_workers", "resnet_starved", "loader_restarts"),
    ),
    "bias-before-norm": Case(leads=("bias_before_norm",), quiet=("bias_before_relu",)),
    "blocking-copies": Case(beside=("features_apart",), quiet=("features_together", "copy_pageable")),
    "boolean-mask-waits": Case(leads=("boolean_mask",), quiet=("gpt_reads",)),
    "casts": Case(beside=("gpt_small",), quiet=("mlp_4096",)),
    "checkpoint-in-the-loop": Case(
        leads=("checkpointing_io", "saves_few_tensors", "saves_two_of_eight_steps"), quiet=("gpt_reads", "reads_results_each_step"), measured=(("checkpointing_io", "gpt_small", 0.15),)
    ),
    "clipping-by-hand": Case(leads=("clipped_one_by_one",), quiet=("norms_logged", "gpt_reads")),
    "convolution-search": Case(leads=("conv_searches",), quiet=("conv_searches_off", "channels_first")),
    "copies-not-overlapped": Case(
        leads=("copy_pinned",), quiet=("copy_prefetched",), measured=(("copy_pinned", "copy_prefetched", 0.05),)
    ),
    "data-loader-starves-gpu": Case(
        leads=("loader_inline", "resnet_starved", "loader_few_workers", "loader_keeps_workers"),
        beside=("loader_on_disk", "loader_on_full_cores", "loader_on_network", "loader_short_of_workers"),
        quiet=("loader_workers",),
        measured=(
            ("resnet_starved", "resnet_fixed", 0.05),
            ("loader_inline", "loader_workers", 0.30),
            ("loader_few_workers", "loader_workers", 0.05),
        ),
    ),
    "dense-table-gradients": Case(
        leads=("few_rows_looked_up", "rows_looked_up_three_times", "triples"),
        beside=("triples_foreach",),
        quiet=("many_rows_looked_up", "few_rows_of_a_tied_table", "few_rows_for_another_optimizer", "dlrm", "bert_30528"),
    ),
    "deterministic-algorithms": Case(leads=("filled_memory",), quiet=("zeros_asked_for",)),
    "elementwise-chains": Case(beside=("gpt_small",), quiet=("gpt_compiled",)),
    "evaluation-records-graph": Case(beside=("eval_with_grad",), quiet=("eval_without_grad",), condition=("MIN_NUMBERED_SHARE", 1.1)),
    "expert-loops": Case(leads=("expert_loop",), quiet=("equal_layers", "experts_batched")),
    "exposed-communication": Case(beside=("reduced_after",), quiet=("ddp_balanced",)),
    "fp32-products": Case(
        leads=("gpt_fp32", "gpt_tf32"),
        quiet=("gpt_small",),
        measured=(("gpt_fp32", "gpt_small", 0.15), ("gpt_tf32", "gpt_small", 0.10)),
    ),
    "fsdp-prefetch": Case(leads=("weights_gathered_late",), quiet=("weights_gathered_ahead", "ddp_balanced")),
    "fsdp-reshard": Case(beside=("weights_gathered_twice",), quiet=("weights_kept", "ddp_balanced")),
    "gradients-reduced-after": Case(
        leads=("reduced_after",),
        beside=("reduced_one_by_one_by_a_slow_host",),
        quiet=("reduced_within", "ddp_balanced"),
        measured=(("reduced_after", "reduced_within", 0.15),), condition=("MIN_ALL_REDUCES", 1e9)),
    "heads-one-by-one": Case(
        leads=("heads_in_a_loop", "heads_with_own_projections", "heads_written_to_their_place", "fused_heads_in_a_loop", "sliced_heads_in_a_loop"),
        quiet=("attentions_of_layers", "two_attentions_joined", "attentions_summed", "layers_joined_at_the_end", "attention_math", "swin_math"),
    ),
    "host-link-saturated": Case(leads=("link_full", "link_full_to_host"), beside=("link_full_both_ways",), quiet=("link_half_used", "copy_pinned"), condition=("LINK_LIMIT_SHARE", 2.0)),
    "max-autotune": Case(
        beside=("slow_compiled_products",), quiet=("quick_compiled_products", "autotuned_products", "gpt_compiled", "tables_compiled")
    ),
    "samples-one-by-one": Case(leads=("called_sample_by_sample",), quiet=("layers_of_one_sample", "called_batch_by_batch")),
    "samples-prepared-alone": Case(leads=("prepared_one_by_one",), quiet=("few_prepared", "states_one_by_one", "learned_one_by_one")),
    "scripted-code": Case(beside=("scripted_functions",), quiet=("functions_called_forward",), condition=("GRAPH_NAMES", "^$")),
    "plans-for-new-shapes": Case(leads=("attention_planned", "convolutions_planned"), quiet=("attention_planned_once", "two_lengths")),
    "pipeline-bubble": Case(
        leads=("pipeline_of_unequal_stages",), beside=("pipeline_of_two_microbatches",), quiet=("pipeline_of_eight_microbatches", "ddp_balanced")
    ),
    "fp8-products": Case(beside=("mlp_4096",), quiet=("mm_fp8",)),
    "garbage-collection": Case(
        leads=("collected_garbage",), quiet=("gpt_reads_stack",), measured=(("collected_garbage", "gpt_small", 0.15),)
    ),
    "graph-breaks": Case(beside=("graph_breaks_20",), quiet=("graph_breaks_0", "recompiles"), condition=("MIN_PER_STEP", 1e9)),
    "host-swaps": Case(beside=("swapping",), quiet=("loader_on_disk",), condition=("MIN_SWAP_BPS", 1e12)),
    "graph-capture": Case(leads=("graph_captured",), quiet=("nothing_captured", "mlp_graph"), condition=("CAPTURE_CALLS", "^$")),
    "host-waits-for-gpu": Case(
        leads=("gpt_reads", "gpt_reads_stack", "norms_read_before_update"),
        quiet=("gpt_no_reads",),
        measured=(("gpt_reads", "gpt_no_reads", 0.10), ("convnext_clip_by_hand", "convnext_clip", 0.05)),
    ),
    "launch-bound": Case(
        leads=("mlp_eager", "small_batch"),
        quiet=("mlp_graph", "conv_searches", "gpt_compiled"),  # Telemetry sees no idle time in the last.
        measured=(("mlp_eager", "mlp_graph", 0.15),),
    ),
    "layout-conversions": Case(
        leads=("channels_first",), quiet=("channels_last",), measured=(("channels_first", "channels_last", 0.25),)
    ),
    "loop-indexing": Case(leads=("rows_in_a_loop",), quiet=("few_rows", "eval_with_grad")),
    "loss-head": Case(beside=("vocab_50304",), quiet=("gpt_compiled", "reduced_after")),
    "memory-creep": Case(leads=("memory_creep",), quiet=("gpt_stack_memory",), condition=("MIN_BYTES", 1e12)),
    "memory-headroom": Case(beside=("gpt_reads",), quiet=("memory_full",), condition=("MAX_USED_SHARE", 0.0)),
    "memory-near-limit": Case(beside=("memory_full",), quiet=("resnet_fixed", "optimizer_heavy"), condition=("MIN_USED_SHARE", 1.01)),
    "misaligned-dimensions": Case(
        leads=("mlp_4093", "vocab_50257", "odd_model_width"),
        quiet=("mlp_4096", "vocab_50304"),
        measured=(("mlp_4093", "mlp_4096", 0.15), ("vocab_50257", "vocab_50304", 0.15)),
    ),
    "norms-one-by-one": Case(leads=("norms_of_all",), beside=("histograms_of_all", "gpt_no_reads"), measured=(("gpt_no_reads", "gpt_small", 0.05),), quiet=("norms_to_scale", "norms_read", "norms_in_the_loss", "norm_of_one", "clipped_one_by_one")),
    "operators-on-cpu": Case(leads=("sorted_on_host",), quiet=("sorted_by_launches", "mask_from_cpu")),
    "optimizer-foreach": Case(
        leads=("triples_foreach",), beside=("adam_foreach", "adam_foreach_of_two_groups", "sgd_foreach_of_two_groups"), quiet=("gpt_small", "muon_foreach"), measured=(("triples_foreach", "triples", 0.05),)
    ),
    "optimizer-not-fused": Case(
        beside=("adam_single", "adam_one_by_one"), quiet=("adam_fused", "own_optimizer"), measured=(("adam_single", "adam_fused", 0.35),)
    ),
    "optimizer-share": Case(beside=("optimizer_heavy",), quiet=("memory_full",)),
    "pageable-copies": Case(
        leads=("copy_pageable",), quiet=("copy_pinned",), measured=(("copy_pageable", "copy_pinned", 0.05),)
    ),
    "periodic-stalls": Case(
        beside=("slow_every_fourth", "pauses", "pauses_to_save", "pauses_often_to_save"),
        quiet=("gpt_small", "pauses_to_evaluate", "waits_for_what_it_launched"),
    ),
    "power-cap": Case(beside=("held_down_by_power", "gpt_tf32"), quiet=("some_power_cap", "held_down_by_heat")),
    "prefetch-queue-hid-the-loader": Case(
        leads=("full_queue",),
        quiet=("loader_workers", "loader_few_workers", "loader_keeps_workers"),  # The profile of the last two shows the wait.
        condition=("loader_may_limit", lambda _context: False)),
    "profile-not-representative": Case(leads=("checkpoint_unseen",), quiet=("checkpointing_io", "pauses_often_to_save"), condition=("hidden_time", lambda _context: None)),
    "profiler-distorts": Case(beside=("memory_creep",), quiet=("reduced_within", "adam_fused", "gpt_small")),
    "python-between-operators": Case(
        leads=("python_host", "slow_every_fourth"),
        quiet=("gpt_small",),
        measured=(("python_host", "gpt_small", 0.10), ("slow_every_fourth", "gpt_small", 0.05)),
    ),
    "recompilation": Case(leads=("recompiles",), quiet=("gpt_compiled",)),
    "recomputation": Case(
        beside=("recompute",), quiet=("gpt_small",), measured=(("recompute", "gpt_small", 0.05),)
    ),
    "recurrent-cells": Case(leads=("lstm_cells",), quiet=("few_lstm_cells",)),
    "shapes-vary": Case(beside=("two_lengths", "llama_lengths", "padded_batches"), quiet=("one_length", "conv_searches_off", "padded_on_a_slow_host"), condition=("differing_step_flops", lambda _context: None)),
    "slow-first-read": Case(
        leads=("read_first",),
        beside=("read_first_and_then_from_memory",),
        quiet=("read_first_of_more_than_memory", "read_first_and_again"),
        condition=("MIN_DISK_SHARE", 1.1),
    ),
    "small-batch": Case(beside=("adam_fused",), quiet=("gpt_small", "conv_searches")),
    "small-collectives": Case(beside=("reduced_after",), quiet=("ddp_balanced", "reduced_within")),
    "small-copies": Case(
        leads=("many_small_copies", "features_apart"),
        quiet=("large_copies", "two_small_copies", "features_together"),
        measured=(("features_apart", "features_together", 0.15),),
    ),
    "steps-not-marked": Case(beside=("gpt_no_steps",), quiet=("gpt_small",), condition=("PROFILER_MARKS", ("profiler_step", "annotation", "inferred", "none"))),
    "straggling-rank": Case(
        leads=("ddp_straggler",), quiet=("ddp_balanced",), measured=(("ddp_straggler", "ddp_balanced", 0.15),)
    ),
    "unused-parameter-search": Case(
        beside=("searches_unused_parameters",), quiet=("searches_nothing", "accumulated_without_sync", "ddp_balanced"), condition=("SEARCH_EVENT", "no_such_event")
    ),
    "tables-one-by-one": Case(
        leads=("tables_looked_up_one_by_one", "sparse_tables_one_by_one"),
        beside=("dlrm",),
        quiet=("one_table_looked_up_often", "one_sparse_table_looked_up_often", "few_tables_looked_up", "tables_of_two_widths", "tables_with_products_between", "triples"),
    ),
    "tensors-made-on-cpu": Case(
        leads=("mask_from_cpu", "zeros_copied"),
        quiet=("mask_on_gpu", "zeros_filled_and_copied"),
        measured=(("mask_from_cpu", "mask_on_gpu", 0.15),),
    ),
    "tf32-off": Case(beside=("gpt_fp32",), quiet=("gpt_tf32",), measured=(("gpt_fp32", "gpt_tf32", 0.20),)),
    "thermal-slowdown": Case(beside=("held_down_by_heat",), quiet=("mm_fp8", "two_hot_samples", "held_down_by_power")),
    "unfused-activation": Case(beside=("norm_by_hand",), quiet=("gpt_small",)),
    "unfused-attention": Case(
        leads=("attention_math",), quiet=("attention_sdpa", "math_backend"), measured=(("attention_math", "attention_sdpa", 0.20),)
    ),
    "unfused-norm": Case(leads=("norm_by_hand",), quiet=("gpt_small",)),
    "unused-gradients": Case(
        leads=("trained_above", "trained_above_twice"),
        quiet=("all_trained", "never_cleared", "trained_below", "gathered", "gathered_of_experts", "cleared_rarely"),
    ),
    "weights-averaged-one-by-one": Case(
        leads=("weights_averaged", "weights_averaged_by_lerp", "weights_averaged_in_a_copy", "weights_averaged_and_norms_logged"),
        quiet=("weights_updated_by_the_optimizer", "weights_averaged_at_once", "few_weights_averaged", "weights_decayed", "weights_moved_by_momentum",
               "gradients_changed_before_the_optimizer", "clipped_one_by_one", "adam_single"),
    ),
    "workers-start-again": Case(leads=("loader_restarts",), quiet=("loader_keeps_workers",)),
    "workers-beyond-cores": Case(beside=("loader_on_full_cores", "main_thread_without_a_core"), quiet=("loader_short_of_workers",), condition=("CORES_FULL_PCT", 101.0)),
    "zeroed-gradients": Case(
        beside=("filled_gradients",),
        quiet=("zeroed_gradients", "gpt_small"),  # One fused fill of the first is 0.2 % of its step.
    ),
}  # fmt: skip
