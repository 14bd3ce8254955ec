"""What PyTorch recorded: safe unpickling, every schema version, immutable records."""
