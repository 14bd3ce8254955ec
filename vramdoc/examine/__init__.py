"""The pipeline as functions: a target in, a Report out."""
