"""The catalogue's entries, by where the change is made: allocator settings, the program, the machine and its processes."""
