"""The server's process: start, access, logins, tokens, slow clients, and the sampler of this machine."""
