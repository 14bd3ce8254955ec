"""Which tensors have memory on a device, at which address: the part of the survey that knows tensors, and nobody who holds them."""

from __future__ import annotations

import torch

from vramdoc.record.inside.object_graph import Objects
from vramdoc.record.inside.owners import is_kind_of


def has_storage(kind: type) -> bool:
    """Whether tensors of this type have a storage; wrappers of others (``__torch_dispatch__``) are seen through their parts."""
    return (
        is_kind_of(kind, torch.Tensor)
        and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined] # of every tensor type
    )


def storage_of(tensor: torch.Tensor, device: int) -> tuple[int, int] | None:
    """Address and bytes of a tensor's storage on ``device``; None for any other."""
    try:
        if not tensor.is_cuda or tensor.get_device() != device:
            return None
        storage = tensor.untyped_storage()
        return (storage.data_ptr(), storage.nbytes()) if storage.nbytes() else None
    except (RuntimeError, NotImplementedError):  # no storage, as a sparse tensor
        return None


def present(blocks: set[int], device: int) -> dict[int, int]:
    """Of these addresses, those at which a tensor lies now, with its bytes."""
    objects = Objects()
    found = (storage_of(objects.all[index], device) for index in objects.of_kind(has_storage))
    return {address: size for address, size in filter(None, found) if address in blocks}


def allocated_bytes(device: int) -> int:
    """Bytes that torch counts as allocated on ``device``."""
    return int(torch.cuda.memory_stats(device).get("allocated_bytes.all.current", 0))
