"""Sessions that end and whose caches do not: the answer is sent, and nobody takes the cache out of the table.

    vramdoc diagnose --gpu 2GiB -- python examples/ended_sessions.py

``vramdoc.mark`` says which session is at work; it does nothing when the program runs by itself. Each third session is long, so memory
does not rise evenly, but what a session allocated is still there when two more have ended. The report names the table.
"""

import torch

import vramdoc

MIB = 1 << 20


class Server:
    """Keeps a cache a session."""

    def __init__(self):
        self.caches = {}

    def serve(self, session):
        """Answer one session."""
        vramdoc.mark(f"session {session}")
        size = 96 if session % 3 == 0 else 24
        self.caches[session] = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        return self.caches[session].numel()


server = Server()
for session in range(200):
    server.serve(session)
