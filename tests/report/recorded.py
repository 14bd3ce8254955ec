"""Reports that the real pipeline makes: of the ten recordings beside this module, and of two crash texts.

``make_recordings`` made the recordings. Nothing here is written by hand but the texts, and those are torch's own words.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

from vramdoc.examine.pipeline import examine
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.examine.target import Target, recognise
from vramdoc.report.contents import Report

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = tuple(sorted(folder.name for folder in RECORDINGS.iterdir()))
TEXTS = {
    "crash-text": """\
Traceback (most recent call last):
  File "/home/ann/chat/serve.py", line 88, in forward
    out = self.layers(tokens, cache)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which \
512.00 MiB is free. Process 4242 has 23.13 GiB memory in use. Of the allocated memory 22.50 GiB is allocated by PyTorch, and \
180.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
""",
    "undecided": "RuntimeError: CUDA error: out of memory\n",
}


@cache
def report_of(name: str) -> Report:
    """What the pipeline says of one recording or text."""
    command = f"vramdoc diagnose {name}"
    if name in TEXTS:
        found = Target(kind="crash-text", path=None)
        stream = io.BytesIO(TEXTS[name].encode())
        return examine(DiagnoseRequest(target=found, stdin=stream, command=command))
    return examine(DiagnoseRequest(target=recognise(str(RECORDINGS / name)), command=command))
