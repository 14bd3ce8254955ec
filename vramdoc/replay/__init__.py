"""Requests out of a trace, put through the simulator or the real allocator again; how faithful that was."""
