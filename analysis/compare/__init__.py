"""Two runs or many: what changed, whether that is more than noise, gates, and sweeps over a setting."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "chain": (
            "Chain",
            "Change",
            "chain",
        ),
        "comparison": (
            "Comparison",
            "MetricChange",
            "compare",
        ),
        "gate": (
            "Outcome",
            "judge",
            "parse_gate",
        ),
        "matching": ("Match",),
        "changed.prediction": ("Prediction",),
        "record": (
            "FOLLOWS",
            "follows",
            "records",
            "remember",
        ),
        "reasons": ("GPU_BESIDE_CPU",),
        "report": ("compare_json",),
        "side": (
            "Side",
            "side_of",
        ),
        "throughput": ("Throughput",),
        "waterfall": ("is_grown",),
        "worth": ("OF_THE_PROFILE", "RowWord", "STEP"),
        "sweep": (
            "BATCH",
            "BatchPrediction",
            "Point",
            "Sweep",
            "device_memory",
            "settings_of",
            "value_of",
            "varied",
        ),
    },
)
