"""The command line: one command a file; parse, call one function, write, choose the exit code."""
