"""The driver library alone, without torch: each call at the edges of what it promises."""

import ctypes
import json
import os
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from itertools import pairwise

MIB = 1 << 20
gpu = ctypes.CDLL(None)
said = {}


def call(name, *arguments):
    return getattr(gpu, name)(*arguments)


def used():
    free, total = c_size_t(), c_size_t()
    assert call("cudaMemGetInfo", byref(free), byref(total)) == 0
    return total.value - free.value


def malloc(size):
    pointer = c_void_p()
    return call("cudaMalloc", byref(pointer), c_size_t(size)), pointer


def visible():
    count = c_int()
    code = call("cudaGetDeviceCount", byref(count))
    said["count"], said["count_code"] = count.value, code
    if count.value:
        call("cudaSetDevice", 0)
        malloc(10 * MIB)
    amounts = []
    total = c_uint()
    call("nvmlDeviceGetCount_v2", byref(total))
    for index in range(total.value):
        handle, memory = c_void_p(), (ctypes.c_ulonglong * 3)()
        call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
        call("nvmlDeviceGetMemoryInfo", handle, memory)
        amounts.append(memory[2])
    said["nvml_used"] = amounts


def ranges():
    base = used()
    codes = [malloc(size) for size in (1, 2 * MIB, 2 * MIB + 1)]
    said["charged"] = used() - base
    addresses = [pointer.value for _, pointer in codes]
    said["gaps"] = [b - a for a, b in pairwise(addresses)]
    said["free_inside"] = call("cudaFree", c_void_p(addresses[2] + 512))
    said["free"] = [call("cudaFree", c_void_p(address)) for address in addresses]
    said["free_twice"] = call("cudaFree", c_void_p(addresses[0]))
    said["after_free"] = used() - base
    said["again_higher"] = malloc(1)[1].value > max(addresses)
    said["malloc_nothing"] = malloc(0)[1].value
    said["malloc_too_much"] = malloc(1 << 50)[0]
    said["last_error"] = [call("cudaGetLastError"), call("cudaGetLastError")]


def mapping():
    base = used()
    address, handle = c_uint64(), c_uint64()
    prop = (c_int * 16)(1, 0, 1, 0)
    create = lambda size: call("cuMemCreate", byref(handle), c_size_t(size), prop, c_uint64())  # noqa: E731
    said["odd_size"] = create(3 * MIB)
    said["reserve"] = call("cuMemAddressReserve", byref(address), c_size_t(64 * MIB), 0, 0, 0)
    said["reserving_takes"] = used() - base
    said["create"] = create(20 * MIB)
    at = lambda offset: c_uint64(address.value + offset)  # noqa: E731
    map_ = lambda offset: call("cuMemMap", at(offset), c_size_t(20 * MIB), 0, handle, 0)  # noqa: E731
    said["map"], said["map_over"], said["map_outside"] = map_(0), map_(10 * MIB), map_(60 * MIB)
    said["release"] = call("cuMemRelease", handle)
    said["held_while_mapped"] = used() - base
    said["free_mapped"] = call("cuMemAddressFree", address, c_size_t(64 * MIB))
    said["unmap"] = call("cuMemUnmap", at(0), c_size_t(20 * MIB))
    said["after_unmap"] = used() - base
    said["free_addresses"] = call("cuMemAddressFree", address, c_size_t(64 * MIB))
    said["release_twice"] = call("cuMemRelease", handle)
    said["create_too_much"] = create(1 << 50)


def host():
    buffer = (ctypes.c_char * 64)(*b"x" * 64)
    other = (ctypes.c_char * 64)()
    device = malloc(1024)[1]
    copy = lambda to, source, kind: call("cudaMemcpy", to, source, c_size_t(8), kind)  # noqa: E731
    said["default_kind"] = [
        copy(other, buffer, 4),
        other.raw[:8].decode(),
        copy(other, device, 4),
        list(other.raw[:8]),
        copy(device, buffer, 4),
        copy(other, buffer, 9),
    ]
    said["register"] = [
        call("cudaHostRegister", buffer, c_size_t(64), 0),
        call("cudaHostRegister", buffer, c_size_t(64), 0),
        call("cudaFreeHost", buffer),
        call("cudaHostUnregister", buffer),
        call("cudaHostUnregister", buffer),
    ]
    kinds = []
    pinned = c_void_p()
    call("cudaHostAlloc", byref(pinned), c_size_t(100), 0)
    for pointer in (buffer, pinned, device, c_void_p(device.value + 1023), c_void_p(12345)):
        attributes = (c_int * 32)()
        call("cudaPointerGetAttributes", attributes, pointer)
        kinds.append(attributes[0])
    said["kinds"] = kinds
    said["free_host"] = [call("cudaFreeHost", pinned), call("cudaFreeHost", pinned)]


def pools():
    base, pool, pointer = used(), c_void_p(), c_void_p()
    call("cudaDeviceGetDefaultMemPool", byref(pool), 0)
    allocate = lambda size: call("cudaMallocAsync", byref(pointer), c_size_t(size), None)  # noqa: E731
    said["pool_code"] = allocate(5 * MIB)
    said["pool_takes"] = used() - base
    call("cudaFreeAsync", pointer, None)
    said["pool_keeps"] = used() - base
    call("cudaDeviceSynchronize")
    said["pool_gives_back"] = used() - base
    threshold = c_uint64(2**64 - 1)
    call("cudaMemPoolSetAttribute", pool, 4, byref(threshold))
    allocate(40 * MIB)
    call("cudaFreeAsync", pointer, None)
    call("cudaDeviceSynchronize")
    said["pool_threshold_keeps"] = used() - base
    value = c_uint64()
    said["pool_attributes"] = []
    for attribute in (5, 6, 7, 8):
        call("cudaMemPoolGetAttribute", pool, attribute, byref(value))
        said["pool_attributes"].append(value.value)
    call("cudaMemPoolTrimTo", pool, c_size_t(0))
    said["pool_trimmed"] = used() - base
    said["pool_too_much"] = allocate(1 << 50)


def lookups():
    function, result = c_void_p(), c_int()
    known = call(
        "cuGetProcAddress_v2", b"cuMemGetAddressRange", byref(function), 12000, 0, byref(result)
    )
    said["known"] = [known, bool(function.value), result.value]
    unknown = call(
        "cuGetProcAddress_v2", b"cuNoSuchThing", byref(function), 12000, 0, byref(result)
    )
    said["unknown"] = [unknown, bool(function.value), result.value]
    gpu.cudaGetErrorName.restype = gpu.cudaGetErrorString.restype = c_char_p
    said["error"] = [gpu.cudaGetErrorName(2).decode(), gpu.cudaGetErrorString(2).decode()]
    count = c_uint(0)
    handle = c_void_p(1)
    said["processes_need_room"] = [
        call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), None),
        count.value,
    ]
    said["pid"] = os.getpid()


{f.__name__: f for f in (visible, ranges, mapping, host, pools, lookups)}[sys.argv[1]]()
print(json.dumps(said))
