"""Read the data folder: a locked-down database engine, and a separate process for users' SQL."""
