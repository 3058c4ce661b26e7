"""The server process: start, access, logins, tokens, slow clients, and this machine's sampler."""
