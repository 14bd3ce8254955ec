"""One cause a file, each a module-level RULE."""
