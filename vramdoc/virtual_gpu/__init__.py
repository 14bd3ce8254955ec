"""A device that only keeps accounts: driver library (C), GPU catalogue, the environment that puts a child on it."""
