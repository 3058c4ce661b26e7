"""What is a step: as the host marks it or repeats it, on the device's own clock, and which of them count."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "device": ("STATUS_NAMES", "DeviceSteps", "device_steps"),
        "host": ("HostSteps", "find_host_steps", "marked_steps"),
    },
)
