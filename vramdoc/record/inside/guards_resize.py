"""Guard: a tensor that should grow over memory that torch does not own.

``resize_``, ``resize_as_``, ``set_`` and ``UntypedStorage.resize_`` are watched where they are called; an ``out=`` that failed is
found afterwards, by its victim: torch changes the shape before it finds out that it cannot change the bytes, so a tensor that
claims more bytes than its storage has is the one. The error itself goes to the program as it was, and the watched victim
gets its shape back.

One call is refused instead of made: growing a storage after ``share_memory_()``, which ends the process with a segmentation fault
(torch 2.6 to 2.14).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import prod
from types import FrameType, TracebackType
from typing import Any

import torch

from vramdoc.record.ending import FAILURES
from vramdoc.record.inside.origin import origin_of, remember_loaded
from vramdoc.record.inside.user_line import calling_frame, name_in, named_values, place_of
from vramdoc.record.manifest import ExitKind

_FROZEN = FAILURES[ExitKind.RESIZE]
Observe = Callable[..., None]


def install(observe: Observe) -> None:
    """Watch the calls, and remember what ``torch.load`` loaded."""
    storage_type = torch.UntypedStorage
    _watch(torch.Tensor, "resize_", _wanted_by_resize, observe)
    _watch(torch.Tensor, "resize_as_", _wanted_by_resize_as, observe)
    _watch(torch.Tensor, "set_", _wanted_by_set, observe)
    _watch(storage_type, "resize_", lambda _storage, arguments: int(arguments[0]), observe)
    load = torch.load

    @functools.wraps(load)
    def load_and_remember(f: Any, *arguments: Any, **options: Any) -> Any:
        result = load(f, *arguments, **options)
        with suppress(Exception):
            remember_loaded(
                result, str(getattr(f, "name", f)) if not hasattr(f, "getvalue") else ""
            )
        return result

    torch.load = load_and_remember


def examine(error: BaseException, observe: Observe) -> None:
    """Find the victim of a failed ``out=`` in the frames of the exception, and report it."""
    if not isinstance(error, RuntimeError) or not _FROZEN.search(str(error)):
        return
    if getattr(error, _REPORTED, False):
        return
    for frame, line in _frames(error.__traceback__):
        for name, value in named_values(frame):
            if isinstance(value, torch.Tensor) and _claims_too_much(value):
                place = {**place_of(frame), "line": line}
                _report(observe, "out=", value, name, place, _claimed_bytes(value), [frame])
                return


_REPORTED = "_vramdoc_reported"
_Wanted = Callable[[Any, Sequence[Any]], "int | None"]


def _watch(kind: type, method: str, wanted: _Wanted, observe: Observe) -> None:
    original = getattr(kind, method)

    @functools.wraps(original)
    def watched(self: Any, *arguments: Any, **options: Any) -> Any:
        storage = self if isinstance(self, torch.UntypedStorage) else self.untyped_storage()
        if storage.device.type == "cpu" and storage.is_shared():
            _refuse_if_fatal(method, self, storage, wanted, arguments, observe)
        shape = (
            None
            if storage is self
            else (storage, self.storage_offset(), self.size(), self.stride())
        )
        try:
            return original(self, *arguments, **options)
        except RuntimeError as error:
            if _FROZEN.search(str(error)):
                bytes_wanted = int(arguments[0]) if shape is None else _claimed_bytes(self)
                repaired = shape is not None and _put_back(self, shape)
                _report_call(observe, method, self, bytes_wanted, storage, repaired=repaired)
                with suppress(AttributeError):
                    setattr(error, _REPORTED, True)
            raise

    setattr(kind, method, watched)


def _refuse_if_fatal(
    method: str,
    subject: Any,
    storage: torch.UntypedStorage,
    wanted: _Wanted,
    arguments: Sequence[Any],
    observe: Observe,
) -> None:
    try:
        bytes_wanted = wanted(subject, arguments)
    except (TypeError, ValueError, IndexError):
        return  # arguments that torch will refuse itself
    if bytes_wanted is None or bytes_wanted <= storage.nbytes():
        return
    _report_call(observe, method, subject, bytes_wanted, storage, refused=True)
    raise RuntimeError(
        "Trying to resize storage that is not resizable: it is shared memory, and growing it would have ended the process"
        " with a segmentation fault (refused by vramdoc's recorder)"
    )


def _report_call(
    observe: Observe,
    method: str,
    subject: Any,
    bytes_wanted: int,
    storage: torch.UntypedStorage,
    **more: bool,
) -> None:
    frame = calling_frame(sys._getframe(2))  # noqa: SLF001 # the watched call's caller
    owner = "UntypedStorage." if subject is storage else "Tensor."
    _report(
        observe,
        owner + method,
        subject,
        name_in(frame, subject),
        place_of(frame),
        bytes_wanted,
        _outwards(frame),
        **more,
    )


def _report(
    observe: Observe,
    operation: str,
    subject: Any,
    name: str,
    place: dict[str, Any],
    bytes_wanted: int,
    frames: Sequence[FrameType],
    **more: bool,
) -> None:
    storage = subject if isinstance(subject, torch.UntypedStorage) else subject.untyped_storage()
    observe(
        "resize",
        operation=operation,
        tensor=name,
        origin=origin_of(storage, frames),
        wanted_bytes=bytes_wanted,
        owned_bytes=storage.nbytes(),
        **place,
        **more,
    )


def _put_back(tensor: torch.Tensor, shape: tuple[Any, ...]) -> bool:
    """Give the tensor the shape that its bytes are for; False where autograd does not allow it."""
    try:
        with torch.no_grad():
            _set_plainly(tensor, *shape)
    except RuntimeError:
        return False
    return True


_set_plainly = torch.Tensor.set_
"""As it was before it was watched."""


def _claims_too_much(tensor: torch.Tensor) -> bool:
    try:
        return _claimed_bytes(tensor) > tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):  # sparse, nested, meta: no storage to ask
        return False


def _claimed_bytes(tensor: torch.Tensor) -> int:
    """at::detail::computeStorageNbytes: what a storage must hold for this shape."""
    if not tensor.numel():
        return 0
    reach = sum(
        (size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)
    )
    return int(tensor.element_size() * (tensor.storage_offset() + reach + 1))


def _wanted_by_resize(tensor: torch.Tensor, arguments: Sequence[Any]) -> int:
    sizes = arguments[0] if len(arguments) == 1 and not isinstance(arguments[0], int) else arguments
    return int(tensor.element_size() * (tensor.storage_offset() + prod(sizes)))


def _wanted_by_resize_as(tensor: torch.Tensor, arguments: Sequence[Any]) -> int:
    return int(tensor.element_size() * (tensor.storage_offset() + arguments[0].numel()))


def _wanted_by_set(tensor: torch.Tensor, arguments: Sequence[Any]) -> int | None:
    """``set_(storage, offset, size)`` over the same storage; the other forms take another tensor's."""
    if len(arguments) < 3 or not isinstance(arguments[0], torch.UntypedStorage):
        return None
    return int(tensor.element_size() * (arguments[1] + prod(arguments[2])))


def _outwards(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Innermost first, each with the line it was at."""
    steps = []
    while traceback is not None:
        steps.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return reversed(steps)
