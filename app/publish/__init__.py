"""A run's answer in other systems: trackers and Prometheus.

Nothing is sent unless a command asks for it.
"""
