"""Steps: marked or repeated on the host, placed on the device's clock, and counted or excluded."""
