"""What a model file holds, from its headers and config.json alone: no weights are read, no torch is needed."""

from vramdoc.checkpoint.infer import default_workload, infer_shape
from vramdoc.checkpoint.read import read_checkpoint
from vramdoc.checkpoint.shape import DecoderShape, EncoderShape, OtherShape, Shape
from vramdoc.checkpoint.tensors import Checkpoint, StoredTensor

__all__ = [
    "Checkpoint", "DecoderShape", "EncoderShape", "OtherShape", "Shape", "StoredTensor", "default_workload", "infer_shape", "read_checkpoint",
]  # fmt: skip
