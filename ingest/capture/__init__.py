"""Recording a training loop from inside: the loop as it runs, under the profiler, and as it runs again, in one file.

Needs the standard library and the torch that is there; the rest of Sawtooth is not loaded.
"""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "callbacks": ("hugging_face_callback", "lightning_callback"),
        "devices": ("TRACE_KEY",),
        "dispatch": (
            "TorchBench",
            "calibrate",
        ),
        "marks": ("PHASES",),
        "recorder": ("profile",),
        "packing": (
            "COPY_BYTES",
            "FORMAT",
            "MANIFEST",
            "SOURCE",
            "is_bundle",
            "pack",
        ),
    },
)
