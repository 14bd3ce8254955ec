"""Run a child process under an allocator config on a device and keep a recording."""
