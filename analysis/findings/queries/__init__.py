"""What rules ask of a recording, a module a subject: calls, copies, reads, attention, chains, the loader … Rules share no other knowledge of it."""
