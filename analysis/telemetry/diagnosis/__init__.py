"""What telemetry alone shows of a run: throttling, a GPU unlike its peers, trends, dips, idle time, links, errors, other users."""
