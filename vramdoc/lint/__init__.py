"""Memory mistakes visible in source: one pass over the syntax tree."""
