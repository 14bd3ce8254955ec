"""One smell a file."""
