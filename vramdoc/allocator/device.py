"""Device: what the CUDA driver answers about memory. Accounts only; there is no memory behind its addresses.

It behaves as the virtual GPU does: addresses go up from one base, 2 MiB aligned, and are never handed out twice; memory is
charged in 2 MiB pages. So both engines can be compared address by address.
"""

from __future__ import annotations

from vramdoc.units import MIB

PAGE = 2 * MIB
"""Granularity of physical memory and of addresses."""
BASE_ADDRESS = 0x7F0000000000


class Device:
    """One device with ``capacity`` bytes in all, of which ``in_use`` belong to contexts, libraries and other processes.

    ``events_ready`` says whether recorded CUDA events are complete when they are queried; waiting always completes them.
    """

    def __init__(
        self, capacity: int, *, in_use: int = 0, index: int = 0, base: int = BASE_ADDRESS
    ) -> None:
        self.capacity = capacity
        self.in_use = in_use
        self.index = index
        self.events_ready = True
        self.used = 0
        """Bytes charged to this process's allocator."""
        self.next_address = base
        self._ranges: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """Free memory as cudaMemGetInfo reports it."""
        return self.capacity - self.in_use - self.used

    def malloc(self, size: int) -> int | None:
        """cudaMalloc: an address, or None when the device is out of memory."""
        charge = -(-size // PAGE) * PAGE
        if charge > self.free_bytes:
            return None
        self.used += charge
        address = self.reserve(size)
        self._ranges[address] = charge
        return address

    def free(self, address: int) -> None:
        """Return (cudaFree) an address that ``malloc`` returned."""
        self.used -= self._ranges.pop(address)

    def reserve(self, size: int, *, stream: int = 0, page: int = PAGE) -> int:  # noqa: ARG002 - as in ``map``
        """cuMemAddressReserve: address space without memory behind it.

        Args:
            size: bytes of the range.
            stream: whose blocks it will hold.
            page: in which steps it will be mapped.
        """
        address = self.next_address
        self.next_address += -(-size // PAGE) * PAGE
        return address

    def unreserve(self, address: int) -> None:
        """Give address space back (cuMemAddressFree): nothing to account for, as addresses are never used twice."""

    def map(self, address: int, size: int) -> bool:  # noqa: ARG002 - a device that follows a recording uses it
        """Put memory (cuMemCreate, cuMemMap) behind ``size`` bytes, all or nothing; False when the device is out of memory."""
        if size > self.free_bytes:
            return False
        self.used += size
        return True

    def unmap(self, address: int, size: int) -> None:  # noqa: ARG002 - as in ``map``
        """Take it back (cuMemUnmap, cuMemRelease)."""
        self.used -= size

    def adopt(self, address: int, size: int) -> None:
        """Take over a cudaMalloc that was made before (``restore``)."""
        charge = -(-size // PAGE) * PAGE
        self._ranges[address] = charge
        self.adopt_pages(address, charge)

    def adopt_pages(self, address: int, size: int) -> None:
        """Take over mapped pages; new addresses will be above them."""
        self.used += size
        self.next_address = max(self.next_address, -(-(address + size) // PAGE) * PAGE)
