"""A reference cycle: a session and its engine know each other, so a finished session waits for Python's garbage collector.

    vramdoc diagnose --gpu 2GiB -- python examples/reference_cycle.py

The collector counts objects, not bytes: forty sessions are a hundred objects and the whole device. (It is switched off here, as
servers do to avoid its pauses, so that the number of sessions does not depend on what else makes objects.) The report names the
attribute that leads back, and what a ``gc.collect()`` at the end of the program returned.
"""

import gc

import torch

MIB = 1 << 20


class Engine:
    """Serves one session at a time."""

    def start(self):
        """Open a session."""
        self.session = Session(self)
        return self.session


class Session:
    """One conversation and its cache."""

    def __init__(self, engine):
        self.engine = engine
        self.cache = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")]


gc.disable()
for _request in range(200):
    Engine().start()
