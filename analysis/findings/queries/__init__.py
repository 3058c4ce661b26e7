"""What rules ask of a recording, a module a subject: calls, copies, the host's reads, attention, chains of kernels, the loader …"""
