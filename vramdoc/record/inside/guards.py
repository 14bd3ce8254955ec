"""The guards of a recorded process, put in place once torch is imported.

Each is cheap while nothing is wrong; what they see goes to the recording as observations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from vramdoc.record.ending import FAILURES
from vramdoc.record.inside import guards_casts, guards_cublas, guards_overflow, guards_resize
from vramdoc.record.manifest import ExitKind

Observe = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Guards:
    """What is left to do at the end of the process."""

    observe: Observe
    _drain_cublas: Callable[[], None] | None
    _report_casts: Callable[[Observe], None]

    def examine(self, error: BaseException | None) -> None:
        """Look at the exception that ended the program, while its frames still hold what failed."""
        if error is None:
            return
        guards_resize.examine(error, self.observe)
        is_creation = "cublasCreate" in str(error) and FAILURES[ExitKind.CUBLAS].search(str(error))
        if is_creation and self._drain_cublas is None:
            with suppress(RuntimeError):  # a sticky error of the device: nothing can be asked
                free, _ = torch.cuda.mem_get_info()
                self.observe(
                    "cublas-handle",
                    device=torch.cuda.current_device(),
                    driver_free_bytes=free,
                    ok=False,
                )

    def report(self) -> None:
        """Hand over what was only counted, or is still on its way."""
        if self._drain_cublas is not None:
            self._drain_cublas()
        self._report_casts(self.observe)


def install(observe: Observe) -> Guards:
    """Put all guards in place."""
    guards_resize.install(observe)
    guards_overflow.install(observe)
    return Guards(observe, guards_cublas.install(observe), guards_casts.install())
