"""What is a step: as the host marks it or repeats it, on the device's own clock, and which of them count."""
