"""Facts: usage, fragmentation, lifetimes, the anatomy of an out-of-memory error. Measures, never judges."""
