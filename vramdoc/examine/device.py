"""Which device to run on when nobody said."""

from __future__ import annotations

DEFAULT_VIRTUAL_GPU = "rtx4090"
"""The commonest card with 24 GiB: what most people who ask have, or rent."""


def choose_gpu(asked: str | None) -> tuple[str, str]:
    """Return (what to run on, a sentence for the reader; empty when the person chose)."""
    if asked:
        return asked, ""
    from vramdoc.record.devices import real_gpus

    gpus, _note = real_gpus()
    if gpus:
        return "cuda:0", ""
    return (
        DEFAULT_VIRTUAL_GPU,
        f"No GPU was found here, so this ran on a virtual {DEFAULT_VIRTUAL_GPU}; choose another with --gpu.",
    )
