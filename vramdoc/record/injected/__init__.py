"""A folder that goes first on PYTHONPATH of a recorded program. ``sitecustomize`` is all that is in it."""
