"""Read a fixed set of tables from SQLite exports of Nsight Systems, with limits on size and time."""
