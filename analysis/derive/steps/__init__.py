"""Find the steps of a recording, by marks or by repetition, and choose those that count."""
