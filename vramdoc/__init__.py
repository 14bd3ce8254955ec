"""vramdoc: why did this GPU run out of memory, and which change provably fixes it?

Importing the package costs nothing: it holds the version and no import of torch, numpy, pandas, matplotlib or NVML.
"""

__version__ = "0.1.0"
