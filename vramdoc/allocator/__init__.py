"""PyTorch's caching allocator, exact to the byte, release by release. Pure: no files, no clock, no torch."""
