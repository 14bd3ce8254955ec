r"""Every other failure text that is recognised, as one table: kind, wording, an anchor and a pattern.

Matched are the stable parts of each message; what varies (paths, line numbers, punctuation of old releases) is left out. Named
groups become readings. Near misses of the resize message stand before it, because they have other fixes. It knows no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from vramdoc.crashlog.incident import Incident
from vramdoc.crashlog.readings import readings_of
from vramdoc.crashlog.signals import BAR, BUS_ERROR, KILLED, any_of, told_by_a_shell
from vramdoc.crashlog.sizes import SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One message. ``anchor`` is a literal part of it: the expression is not even compiled for text without it."""

    kind: str
    name: str
    anchor: str
    expression: str
    wraps: bool = True
    """A blank may be a line break: consoles and mail programs wrap long messages. Rows of tables are not wrapped."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression; compiling all of them at import would cost each start 20 ms."""
        return _compiled(self.expression, wraps=self.wraps)


_BLANK = re.compile(r"\\[^ ]|\[(?:\\.|[^\]\\])*\]|\\?(?P<blank> )")
"""A blank outside a set of characters, escaped or not; other escaped characters and sets are passed over."""


@cache
def _compiled(expression: str, *, wraps: bool) -> re.Pattern[str]:
    if wraps:
        expression = _BLANK.sub(lambda m: r"[ \n]" if m["blank"] else m[0], expression)
    return re.compile(expression, re.MULTILINE)


def _w(kind: str, name: str, anchor: str, expression: str = "") -> Wording:
    return Wording(kind=kind, name=name, anchor=anchor, expression=expression or re.escape(anchor))


_DEVICE_OOM = (
    _w("bare-oom", "cuda-error", "out of memory", r"(?:CUDA|HIP)(?: driver)? error: out of memory"),
    _w("bare-oom", "runtime-2", "out of memory", r"cuda runtime error \(2\) ?: out of memory"),
    _w("bare-oom", "class-only", "out of memory", r"(?:CUDA|HIP|XPU) out of memory(?!\.?\s*(?:\\n)?\s*(?:Tried|Allocation was))"),
    _w("bare-oom", "tgi-warmup", "Not enough memory to handle", r"Not enough memory to handle \d+ (?:total tokens with \d+ )?prefill tokens(?:\. You need to decrease [`\w -]{1,90})?"),
    _w("bare-oom", "vllm-warmup", "warming up sampler", r"(?:CUDA|HIP|XPU) out of memory occurred when warming up sampler with (?P<sequences>\d+) dummy requests"),
    _w("bare-oom", "constant", "MEMORY", r"\bCUDA_ERROR_OUT_OF_MEMORY\b"),
    _w("bare-oom", "constant", "hipErrorOutOfMemory"),
    _w("bare-oom", "constant", "cudaErrorMemoryAllocation"),
    _w("bare-oom", "async-short", "Allocation on device", r"Allocation on device(?! \S{1,40} would)\b"),
    _w("bare-oom", "cuda-malloc", "cudaMalloc failed", r"cudaMalloc failed: out of memory"),
    _w("bare-oom", "jetson", "NvMap", r"NvMapMemAlloc\w{1,30}: \d+,? error 12"),
    _w("bare-oom", "nccl", "Cuda failure", r"Cuda failure (?:\d )?'out of memory'"),
    _w("bare-oom", "nccl", "Failed to CUDA calloc", r"Failed to CUDA calloc (?:async |host )?(?P<requested>\d+ bytes)"),
    _w("vgpu-limit", "hami", " OOM ", r"Device \d+ OOM (?P<wanted_bytes>\d+) / (?P<limit_bytes>\d+)"),
    _w("bare-oom", "expandable-broken", "!handles_.at(", r"!handles_\.at\(\w{1,20}\) INTERNAL ASSERT FAILED"),
    _w("nvml-assert", "nvml-assert", "NVML_SUCCESS", r"NVML_SUCCESS == [^\n]{1,80}? INTERNAL ASSERT FAILED at [\"']?(?P<file>[^\"'\n]{1,300})[\"']?:(?P<line>\d+)"),
    _w("bare-oom", "tensorflow", "OOM when allocating tensor", r"OOM when allocating tensor with shape ?\[[^\]\n]{0,200}\]"),
    _w("bare-oom", "jax", "RESOURCE_EXHAUSTED", r"RESOURCE_EXHAUSTED: Out of memory while trying to allocate (?P<requested>\d+ bytes)"),
    _w("mps-buffer", "mps-buffer", "Invalid buffer size", rf"Invalid buffer size: (?P<requested>{SIZE})"),
    _w("driver-error", "driver-error", "driver error", r"CUDA driver error: (?P<what>invalid argument|unknown error|operation not supported|invalid device ordinal)"),
)  # fmt: skip

_ENGINES = (
    _w("engine-budget", "vllm-startup", "on startup is less than", rf"Free memory on device(?: \S{{1,20}})? \((?P<free_gib>[0-9.]+)/(?P<total>{SIZE})\) on startup is less than desired GPU memory utilization \((?P<utilization>[0-9.]+), (?P<requested>{SIZE})\)"),
    _w("engine-kv", "vllm-max-len", "max seq len", r"max(?:imum)? seq(?:uence)? len(?:gth)? \((?P<wanted_tokens>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((?P<stored_tokens>\d+)\)"),
    _w("engine-kv", "vllm-kv-bytes", "KV cache is needed", rf"max seq len \((?P<wanted_tokens>\d+)\), \(?(?P<wanted>{SIZE}) KV cache is needed, which is larger than the available KV cache memory \((?P<available>{SIZE})\)(?:[^\n]{{0,160}}?maximum model length is (?P<stored_tokens>\d+))?"),
    _w("engine-profile", "vllm-profiling", "Error in memory profiling", r"Error in memory profiling\. Initial free memory (?P<before>[0-9.]+ GiB), current free memory (?P<after>[0-9.]+ GiB)"),
    _w("engine-no-kv", "vllm-no-blocks", "No available memory for the cache blocks"),
    _w("engine-no-kv", "sglang", "Not enough memory", r"Not enough memory\. Please try to increase --mem-fraction-static"),
)  # fmt: skip

_LIBRARIES = (
    _w("cublas", "cublas", "CUBLAS_STATUS_", r"CUBLAS_STATUS_(?P<status>[A-Z_]+)(?:,?\s+when\s+calling\s+[`'\"]?(?P<call>\w+))?"),
    _w("cublas", "hipblas", "HIPBLAS_STATUS_", r"HIPBLAS_STATUS_(?P<status>[A-Z_]+)(?:,?\s+when\s+calling\s+[`'\"]?(?P<call>\w+))?"),
    _w("cublas", "torch-1.1", "cublas runtime error", r"cublas runtime error : (?P<status>resource allocation failed|library not initialized|the GPU program failed to execute|an internal operation failed|an invalid numeric value was used as an argument|an absent device architectural feature is required)(?: at (?P<file>[^\s:]{1,200}):(?P<line>\d+))?"),
    _w("cusolver", "cusolver", "CUSOLVER_STATUS_", r"CUSOLVER_STATUS_(?P<status>[A-Z_]+)(?:,?\s+when\s+calling\s+[`'\"]?(?P<call>\w+))?"),
    _w("cudnn", "cudnn", "CUDNN_STATUS_", r"CUDNN_STATUS_(?P<status>[A-Z_]+)"),
    _w("device-assert", "kernel", "Assertion", r"(?P<file>[^\s:()]{1,200}\.(?:cu|cuh|h|hpp)):(?P<line>\d+):\s?(?P<function>[^\n]{0,1500}?)[:,]? block: \[[^\]\n]{1,40}\], thread: \[[^\]\n]{1,40}\] Assertion [`'\"](?P<assertion>[^\n]{1,300}?)[`'\"] failed"),
    _w("device-assert", "torch-0.4", "Assertion", r"(?P<file>[^\s:()]{1,200}\.(?:cu|cuh)):(?P<line>\d+):\s(?P<function>[^\n]{0,400}?)Assertion [`'\"](?P<assertion>[^\n]{1,300}?)[`'\"] failed"),
    _w("device-assert", "triggered", "device-side assert triggered", r"device-side assert triggered"),
    _w("illegal-access", "illegal-access", "illegal memory access", r"an illegal memory access was encountered"),
    _w("index-error", "embedding", "index out of range in self"),
    _w("index-error", "target", "out of bounds", r"(?:IndexError: )?Target (?P<index>-?\d+) is out of bounds"),
    _w("no-kernel-image", "no-kernel-image", "no kernel image is available"),
    _w("driver-too-old", "driver-too-old", "driver version is insufficient", r"CUDA driver version is insufficient for CUDA runtime version"),
    _w("library-load", "symbol", "undefined symbol", r"(?P<library>lib(?:cublas|cublasLt|cudnn|cudart|nvrtc)[\w.]*)[^\n]{0,200}undefined symbol"),
    _w("library-load", "symbol", "link time reference", r"(?P<library>lib(?:cublas|cublasLt|cudnn|cudart|nvrtc)[\w.]*): symbol \w+,? version [\w.]+ not defined in file [\w.]+ with link time reference"),
    _w("library-load", "version", "version `lib", r"(?P<library>libcublas\w*\.so[.\d]*): version `lib\w+\.so[.\d]*' not found"),
)  # fmt: skip

_RESIZE_NEAR = (
    ("requires-grad", "cannot resize variables that require grad"),
    ("forward-grad", "cannot resize variables that has a forward grad"),
    ("leaf-in-place", "a leaf Variable that requires grad is being used in an in-place operation"),
    ("out-autograd", "arguments don't support automatic differentiation"),
    ("inference-tensor", "Inplace update to inference tensor outside InferenceMode is not allowed"),
    ("negative-strides", "as_strided: Negative strides are not supported"),
    ("storage-offset", "Tensor: invalid storage offset"),
    ("other-device", "to a storage on different device"),
    ("functionalization", "Attempted to resize a view tensor to a larger size"),
    ("vmap", "NYI: resize_ batch rule"),
    ("quantized", "Can only resize quantized tensors with per-tensor schemes"),
    ("quantized", "Unsupported memory format for quantized tensor resize"),
    ("sparse", "Could not run 'aten::resize_' with arguments from the 'Sparse"),
    ("sparse", "shrinking the size of sparse dimensions"),
    ("sparse", "Resizing columns of sparse CSR tensors to a smaller value is not supported"),
    ("nested", "Internal error: NestedTensorImpl doesn't support sizes"),
    ("deprecated-resize", "autograd's resize can only change the shape"),
    ("detached", "is not allowed on a Tensor created from .data or .detach()"),
    ("named", "Cannot resize named tensor"),
    ("truncated-checkpoint", "storage has wrong byte size"),
    ("exotic-device", "UntypedStorage.resize_: got unexpected device type"),
    ("view", "view size is not compatible with input tensor's size and stride"),
)
_RESIZE = (
    _w("out-of-bounds-view", "set-storage", "setStorage:", r"setStorage: sizes \[[^\]\n]{0,200}\], strides \[[^\]\n]{0,200}\], storage offset (?P<offset>\d+), and itemsize (?P<itemsize>\d+) requiring a storage size of (?P<needed_bytes>\d+) are out of bounds for storage of size (?P<owned_bytes>\d+)"),
    _w("resize-near-miss", "view-shape", "is invalid for input of size", r"shape '\[[^\]\n]{0,200}\]' is invalid for input of size \d+"),
    *(_w("resize-near-miss", name, text) for name, text in _RESIZE_NEAR),
    _w("resize", "not-resizable", "not resizable", r"Trying\s+to\s+resize\s+storage\s+that\s+is\s+not\s+resizable"),
    _w("resize", "no-allocator", "without an allocator", r"Trying\s+to\s+resize\s+storage\s+without\s+an\s+allocator"),
    _w("out-resized", "out-resized", "one or more elements was resized", r"An output with one or more elements was resized since it had shape (?P<had>\[[^\]]{0,200}\]), which does not match the required output shape (?P<needed>\[[^\]]{0,200}\])"),
    _w("unequal-stack", "stack", "each tensor to be equal size", r"stack expects each tensor to be equal size, but got (?P<first>\[[^\]]{0,200}\]) at entry 0 and (?P<other>\[[^\]]{0,200}\]) at entry (?P<entry>\d+)"),
    _w("cache-overflow", "index-copy", "index_copy_():", r"index_copy_\(\): index (?P<index>\d+) is out of bounds for dimension (?P<dimension>\d+) with size (?P<size>\d+)"),
    _w("cache-overflow", "slice", "The expanded size of the tensor", r"The expanded size of the tensor \(0\) must match the existing size \((?P<tokens>\d+)\) at non-singleton dimension 2"),
    _w("segfault", "segfault", "egmentation fault", r"(?:Fatal Python error: )?Segmentation fault"),
)  # fmt: skip

_CONFIG = (
    _w("conf-error", "unknown-key", "CachingAllocator option", r"Unrecognized CachingAllocator option: (?P<key>[^\s\"'),]{1,120})"),
    _w("conf-error", "unknown-key", "Unrecognized key", r"Unrecognized key '(?P<key>[^'\n]{0,120})' in (?:(?P<where>CUDA|Accelerator) allocator config)?"),
    _w("conf-error", "separator", "Error parsing CachingAllocator settings", r"Error parsing CachingAllocator settings, expected (?P<expected>\S)?"),
    _w("conf-error", "value", "CachingAllocator option", r"(?<!Unrecognized )CachingAllocator option (?P<key>\w{1,60}) (?P<rule>too small|too big|must be|is invalid)[^\n]{0,60}"),
    _w("conf-error", "value", "garbage_collect_threshold", r"(?P<key>garbage_collect_threshold) (?P<rule>too small|too big|is invalid)"),
    _w("conf-error", "value", "For roundups", r"For roundups, the (?P<key>divisi?ons|intervals) ha(?:s|ve) to be power of 2"),
    _w("conf-error", "value", "per_process_memory_fraction is invalid", r"(?P<key>per_process_memory_fraction) is invalid"),
    _w("conf-error", "value", "Number of register threads", r"Number of register threads (?P<rule>has to be power of 2|should be less than or equal to 128)"),
    _w("conf-error", "value", "Pinned reserve segment size has to be greater than 0"),
    _w("conf-error", "boolean", "in ConfigTokenizer but got", r"Expected 'True' or 'False' at index (?P<index>\d+) in ConfigTokenizer but got '(?P<got>[^'\n]{0,60})'"),
    _w("conf-error", "boolean", "Expected a single True/False argument for", r"Expected a single True/False argument for (?P<key>\w{1,60})"),
    _w("conf-error", "structure", "ConfigTokenizer", r"Index out of bounds in ConfigTokenizer"),
    _w("conf-error", "structure", "Expected closing bracket", r"Expected closing bracket"),
    _w("conf-error", "structure", "Error parsing the allocator config", r"Error parsing the allocator config: [^\n]{0,60}"),
    _w("conf-error", "backend-name", "Unknown allocator backend", r"Unknown allocator backend, options are native and cudaMallocAsync"),
    _w("conf-error", "backend-late", "backend parsed at runtime", r"[Aa]llocator backend parsed at runtime != allocator backend parsed at load time"),
    _w("conf-error", "number", ": sto", r"(?:RuntimeError|ValueError): (?P<function>stoi|stoull|stol|stod)\s*$"),
    _w("conf-error", "number", "what():", r"what\(\):\s{1,4}(?P<function>stoi|stoull|stol|stod)\s*$"),
    _w("conf-error", "watermark", "watermark ratio", r"[Ii]nvalid (?P<which>high|low) watermark ratio (?P<got>[\d.]+)"),
    _w("conf-conflict", "expandable-split", "!block->expandable_segment_", r"!block->expandable_segment_ INTERNAL ASSERT FAILED"),
    _w("conf-unsupported", "expandable", "expandable_segments not supported", r"expandable_segments not supported on this platform"),
    _w("conf-unsupported", "pidfd", "the pidfd_", r"does not support the pidfd_(?:open|getfd) syscall"),
    _w("conf-unsupported", "ipc", "cannot be shared between processes", r"Tensors allocated with expandable_segments:True cannot be shared between processes"),
    _w("conf-unsupported", "mempool", "not compatible with memory pool", r"Expandable segments are not compatible with memory pool"),
    _w("conf-unsupported", "async-runtime", "cudaMallocAsync requires", r"backend:cudaMallocAsync requires (?:PyTorch to be built with )?CUDA[^\n]{0,40}"),
    _w("conf-unsupported", "async-device", "cudaMallocAsync not supported", r"cudaMallocAsync not supported[^\n]{0,60}"),
    _w("conf-ignored", "async-options", "backend:cudaMallocAsync ignores", r"backend:cudaMallocAsync ignores (?P<keys>[^\n.]{1,120})"),
    _w("conf-ignored", "boolean-flag", "Ignoring invalid value for boolean flag", r"Ignoring invalid value for boolean flag (?P<key>[A-Z_]{1,60})"),
    _w("conf-renamed", "renamed", "PYTORCH_CUDA_ALLOC_CONF is deprecated", r"PYTORCH_CUDA_ALLOC_CONF is deprecated"),
)  # fmt: skip

_CODE = r"(?i:exit(?:ed|s)?(?: with)?(?: (?:error )?(?:return )?(?:code|status))?|exit_?code|return(?:ed)?[ _]?code|returned non-zero exit status)\s*[:=]?\s*\(?"
_WORKER = r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\)"

_HOST = (
    _w("host-oom", "cpu-allocator", "you tried to allocate", r"(?:DefaultCPUAllocator|CPUAllocator)?[^\n]{0,60}(?:can't allocate memory|not enough memory): you tried to allocate (?P<requested>\d+ bytes)"),
    _w("host-oom", "cpu-allocator", "Buy new RAM", r"not enough memory: you tried to allocate (?P<requested>\d+ ?[KMGT]?B)\. Buy new RAM"),
    _w("host-oom", "cpu-allocator", "DefaultCPUAllocator", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"),
    _w("host-oom", "numpy", "Unable to allocate", rf"Unable to allocate (?P<requested>{SIZE}) for an array with shape"),
    _w("host-oom", "python", "MemoryError", r"^(?:\w+\.)*MemoryError\b(?!: Cannot allocate write\+execute)"),
    _w("host-oom", "errno-12", "[Errno 12]"),
    _w("host-oom", "errno-12", "unable to mmap", r"unable to mmap (?P<requested>\d+ bytes) from file <[^>]{1,400}>: (?:Cannot allocate memory|[^()]{1,80} \(12\))"),
    _w("host-oom", "mmap", "tried to mmap", rf"unable to mmap memory: you tried to mmap (?P<requested>{SIZE})"),
    _w("host-oom", "pinned", "on host", r"failed to alloc (?P<requested>\d+ bytes) on host(?:: CUDA_ERROR_OUT_OF_MEMORY)?"),
    _w("host-oom", "pinned", "pinned host memory", r"could not allocate pinned host memory of size: (?P<requested_bytes>\d+)"),
    _w("host-oom", "bad-alloc", "std::bad_alloc"),
    _w("host-oom", "winerror-1455", "1455", r"(?:\[WinError|os error|error code:?|WinError) ?1455\b"),
    _w("host-oom", "page-file", "paging file is too small", r"[Tt]he paging file is too small for this operation to complete"),
    _w("host-oom", "kernel", "Out of memory: Kill", r"Out of memory: Kill(?:ed)? process \d+ \((?P<program>[^)\n]{1,40})\)"),
    _w("host-oom", "cgroup", "emory cgroup out of memory", r"[Mm]emory cgroup out of memory"),
    _w("host-oom", "kubernetes", "OOMKilled"),
    _w("host-oom", "ray", "memory pressure (OOM)", r"killed due to memory pressure \(OOM\)"),
    _w("host-oom", "ray", "node running low on memory", r"killed due to the node running low on memory"),
    _w("host-oom", "ray", "memory usage threshold", r"exceeds the memory usage threshold of [\d.]+"),
    _w("host-oom", "ray", "of the memory on node", r"More than \d+% of the memory on node \S{1,80} is used"),
    _w("host-oom", "kernel", "oom-kill:constraint=", r"oom-kill:constraint=CONSTRAINT_\w+"),
    _w("host-oom", "systemd-oomd", "due to memory", r"(?:Killed|Marked) \S{1,300} (?:for killing )?due to memory (?:used|pressure)"),
    _w("host-oom", "earlyoom", "earlyoom", r"earlyoom\S{0,12}: sending SIG(?:TERM|KILL) to process \d+"),
    _w("host-oom", "pbs", "PBS: job killed", r"PBS: job killed: v?mem\b"),
    _w("host-oom", "lsf", "TERM_MEMLIMIT"),
    _w("host-oom", "notebook", "using all available RAM", r"crashed after using all available RAM"),
    _w("host-oom", "notebook", "more memory than is available", r"notebook tried to allocate more memory than is available"),
    _w("host-oom", "slurm", "kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    _w("host-oom", "slurm", "Out Of Memory", r"srun: error: [^\n:]{1,80}: tasks? [\d,-]+: Out Of Memory"),
    _w("host-oom", "worker-killed", "is killed by signal: ", rf"{_WORKER} is killed by signal: {any_of(KILLED)}"),
    _w("host-oom", "evicted", "low on resource", r"low on resource: memory"),
    _w("stopped", "evicted", "low on resource", r"low on resource: (?!memory)[\w-]{1,40}"),
    _w("stopped", "time-limit", "DUE TO TIME LIMIT"),
    _w("stopped", "preemption", "DUE TO PREEMPTION"),
    _w("stopped", "cancelled", "CANCELLED AT", r"\*\*\* (?:JOB|STEP) \S{1,40} ON \S{1,80} CANCELLED AT \S{1,40} \*\*\*"),
    _w("stopped", "probe", "probe", r"[Ll]iveness probe failed|failed liveness probe"),
    _w("shm-full", "bus-error-worker", "bus error encountered in worker", r"Unexpected bus error encountered in worker"),
    _w("shm-full", "bus-error-signal", "is killed by signal: ", rf"{_WORKER} is killed by signal: {any_of(BUS_ERROR)}"),
    _w("shm-full", "shm-alloc", "unable to allocate shared memory(shm)", r"unable to allocate shared memory\(shm\)[^\n]{0,200}"),
    _w("shm-full", "shm-open", "unable to open shared memory object", r"unable to open shared memory object [^()]{0,200}?(?:No space left|Cannot allocate|\((?:12|28)\))"),
    *(_w("shm-full", "bus-error", word, told_by_a_shell(word)) for word in BUS_ERROR),
    _w("shm-full", "shm-write", "unable to write to file </torch_", r"unable to write to file </torch_"),
    _w("shm-full", "sigbus", "135", rf"{_CODE}135\b"),
    _w("shm-full", "sigbus", "-7", rf"{_CODE}-7\b"),
    _w("shm-full", "sigbus", "ignal 7", r"[Ss]ignal 7(?: \(SIGBUS\)|\b(?=[^\n]{0,12}SIGBUS)|\))"),
    _w("killed", "exit-137", "137", rf"{_CODE}137\b"),
    _w("killed", "signal-9", "-9", rf"{_CODE}-9\b"),
    _w("killed", "sigkill", "SIGKILL", r"(?:Signal 9 \(SIGKILL\)|Signals\.SIGKILL|terminated (?:by|with) signal SIGKILL|received SIGKILL)"),
    *(_w("killed", "shell", word, told_by_a_shell(word)) for word in KILLED),
    _w("killed", "shell", "zsh: killed"),
    _w("killed", "shell", " killed ", rf"^{BAR}?\[\d+\] +(?:[+-] +)?\d+ killed +\S"),
    _w("killed", "worker-lost", "orker unexpectedly exits", r"Worker unexpectedly exits with a connection error"),
    _w("killed", "worker-lost", "died unexpectedly", r"The (?:actor|worker) died unexpectedly before finishing this task"),
    _w("killed", "launcher", "Killing subprocess", r"sigkill_handler\] Killing subprocess (?P<pid>\d+)"),
)  # fmt: skip

_ELSEWHERE = (
    _w("elsewhere", "kernel-resources", "out of resource:", r"out of resource: (?P<resource>[a-z ]{1,40}), Required: (?P<required>\d+), Hardware limit: (?P<limit>\d+)"),
    _w("elsewhere", "misaligned-address", "misaligned address"),
    _w("elsewhere", "launch-failure", "unspecified launch failure"),
    _w("elsewhere", "launch-timeout", "launch timed out and was terminated"),
    _w("elsewhere", "ecc", "ECC error", r"uncorrectable (?:NVLink|ECC) error(?: was detected during the execution| encountered)?"),
    _w("elsewhere", "no-device", "No CUDA GPUs are available"),
    _w("elsewhere", "no-device", "Found no NVIDIA driver"),
    _w("elsewhere", "no-device", "no CUDA-capable device is detected"),
    _w("elsewhere", "device-ordinal", "invalid device ordinal", r"CUDA error: invalid device ordinal"),
    _w("elsewhere", "collective-timeout", "collective operation timeout", r"Watchdog caught collective operation timeout"),
)  # fmt: skip

WORDINGS: tuple[Wording, ...] = (
    _DEVICE_OOM + _ENGINES + _LIBRARIES + _RESIZE + _CONFIG + _HOST + _ELSEWHERE
)


def read_wordings(text: str) -> Iterator[Incident]:
    """Yield every failure of the table; offsets are those of ``text``."""
    return matches(WORDINGS, text)


def matches(
    table: Iterable[Wording], text: str, *, start: int = 0, stop: int | None = None
) -> Iterator[Incident]:
    """Yield every match between ``start`` and ``stop`` of every wording whose anchor ``text`` holds."""
    unwrapped = text.replace("\n", " ")
    for wording in table:
        if wording.anchor not in unwrapped:
            continue
        for match in wording.pattern.finditer(text, start, len(text) if stop is None else stop):
            yield Incident(
                kind=wording.kind,
                wording=wording.name,
                readings=readings_of(match),
                start=match.start(),
                end=match.end(),
                text=match[0],
            )
