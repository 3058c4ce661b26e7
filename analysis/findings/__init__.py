"""Rules that find lost time, the queries that they run on a recording, and the findings they build."""
