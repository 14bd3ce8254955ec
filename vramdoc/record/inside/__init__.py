"""What runs inside the recorded process: history, observers, guards. The only part of record that imports torch."""
