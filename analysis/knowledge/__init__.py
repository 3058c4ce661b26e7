"""What is known before any trace is read: GPUs' peaks, kernel names, dtypes, FLOPs, bytes; who can own a nanosecond, and why one is lost.

Tables with a source in every row, and the arithmetic on them. Nothing here knows a run.
"""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "causes": (
            "BETWEEN_RANKS",
            "CAUSES",
            "CAUSE_KEYS",
            "CAUSE_OF",
            "HOST_CAUSES",
            "NOT_RANKED_FIRST",
            "OnHost",
            "REMOVABLE",
            "WAIT_CAUSES",
        ),
        "dtypes": (
            "ITEM_BYTES",
            "dtype_of_type",
        ),
        "flops": (
            "FIRST_OPERAND",
            "is_flop_operator",
            "operator_flops",
            "outermost",
            "peak_dtype",
        ),
        "frames": (
            "FRAME",
            "MODULE",
            "is_user_line",
            "spoken",
            "without_line",
        ),
        "hardware": (
            "LINK_FULL",
            "Link",
            "crossed_by",
            "link_of",
            "Dispatch",
            "Gpu",
            "GRAPH_DISPATCH",
            "UNMEASURED_DISPATCH",
            "identify",
        ),
        "host_names": (
            "COMPUTES_AT_LEAST_NS",
            "DATA_FRAME",
            "DATA_MARK",
            "ENGINE_OP",
        ),
        "kernel_names": (
            "KernelClass",
            "classify",
        ),
        "lost_time": ("UNATTRIBUTED", "is_explained", "known_by"),
        "owners": (
            "COMPUTE_OWNERS",
            "HOST_LOADING",
            "HOST_OPERATORS",
            "HOST_PARTS",
            "HOST_REST",
            "KERNEL_OWNERS",
            "LOST_OWNERS",
            "OUTSIDE_PROFILE",
            "OWNERS",
            "OWNER_BY_KEY",
            "OWNER_KEYS",
            "TENSOR_CORES_USED",
            "owner_of",
        ),
        "kernel_time": (
            "Estimate",
            "Work",
            "estimate",
        ),
        "kernel_work": (
            "QUERY_BLOCK",
            "attention_work",
            "convolution_work",
            "moving_work",
            "optimizer_work",
            "product_work",
            "recorded_attention",
        ),
        "recurrent": ("RECURRENT", "SCRATCH_BYTES", "layers_and_directions"),
        "roofline": ("MOSTLY",),
        "tensor_cores": ("ALIGNMENT_16_BIT", "misaligned_rows", "why_not_tensor_cores"),
        "traffic": ("operator_bytes",),
    },
)
