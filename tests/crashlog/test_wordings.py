"""Every wording of the table matches a real form of its message, and prose about memory matches none."""

from __future__ import annotations

import pytest

from vramdoc.crashlog import parse, signals

CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_{} when calling `{}`"
MESSAGES = [
    # (text, kind, readings that must be there)
    ("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be reported later", "bare-oom", {}),
    ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58", "bare-oom", {}),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "bare-oom", {}),
    ("!!! Exception during processing !!! Allocation on device", "bare-oom", {}),
    ("RuntimeError: CUDA driver error: out of memory", "bare-oom", {}),
    ("ggml_backend: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory", "bare-oom", {}),
    ('RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/p/c10/cuda/CUDACachingAllocator.cpp":830, please report', "nvml-assert", {"line": 830}),
    ("RuntimeError: Invalid buffer size: 24.00 GB", "mps-buffer", {"requested": 24 << 30}),
    ("ValueError: Free memory on device cuda:0 (2.50/23.60 GiB) on startup is less than desired GPU memory utilization (0.9, 21.24 GiB).", "engine-budget", {"utilization": "0.9"}),
    ("ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (6048).", "engine-kv", {"wanted_tokens": 8192, "stored_tokens": 6048}),
    (
        "ValueError: To serve at least one request with the models's max seq len (32768), (4.00 GiB KV cache is needed, which is larger than the available KV cache memory (2.25 GiB). Based on the available memory, the estimated maximum model length is 18432.",
        "engine-kv",
        {"wanted_tokens": 32768, "wanted": 4 << 30, "stored_tokens": 18432},
    ),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", "engine-no-kv", {}),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "engine-no-kv", {}),
    ("Error in memory profiling. Initial free memory 20.10 GiB, current free memory 22.00 GiB.", "engine-profile", {}),
    (CUBLAS.format("ALLOC_FAILED", "cublasCreate(handle)"), "cublas", {"status": "ALLOC_FAILED", "call": "cublasCreate"}),
    (CUBLAS.format("EXECUTION_FAILED", "cublasSgemm( handle, opa, opb, m, n, k)"), "cublas", {"status": "EXECUTION_FAILED", "call": "cublasSgemm"}),
    ("RuntimeError: CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`", "cublas", {"call": "hipblasCreate"}),
    ("RuntimeError: cublas runtime error : resource allocation failed at /pytorch/aten/src/THC/THCGeneral.cpp:228", "cublas", {"status": "resource allocation failed"}),
    ("RuntimeError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`", "cusolver", {"call": "cusolverDnCreate"}),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cudnn", {"status": "ALLOC_FAILED"}),
    (
        "/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.",
        "device-assert",
        {"assertion": "t >= 0 && t < n_classes", "line": 250},
    ),
    (
        '../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [1,0,0], thread: [2,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.',
        "device-assert",
        {"assertion": '-sizes[i] <= index && index < sizes[i] && "index out of bounds"'},
    ),
    ("RuntimeError: CUDA error: device-side assert triggered", "device-assert", {}),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal-access", {}),
    ("IndexError: index out of range in self", "index-error", {}),
    ("IndexError: Target 7 is out of bounds.", "index-error", {"index": 7}),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernel-image", {}),
    ("libcublas.so.11: undefined symbol: cublasLtGetStatusString, version libcublasLt.so.11", "library-load", {"library": "libcublas.so.11"}),
    ("RuntimeError: Trying to resize storage that is not resizable", "resize", {}),
    ("RuntimeError: Trying to resize storage that is not resizable at /pytorch/aten/src/ATen/native/Resize.h:57", "resize", {}),
    ("RuntimeError: Trying to resize storage without an allocator", "resize", {}),
    (
        "UserWarning: An output with one or more elements was resized since it had shape [16], which does not match the required output shape [40].",
        "out-resized",
        {"had": "[16]", "needed": "[40]"},
    ),
    ("RuntimeError: stack expects each tensor to be equal size, but got [3, 4] at entry 0 and [1, 4] at entry 5", "unequal-stack", {"entry": 5}),
    ("IndexError: index_copy_(): index 16 is out of bounds for dimension 2 with size 16", "cache-overflow", {"index": 16}),
    ("RuntimeError: Unrecognized CachingAllocator option: max_split_size", "conf-error", {"key": "max_split_size"}),
    ("ValueError: Unrecognized key 'True' in CUDA allocator config.", "conf-error", {"key": "True", "where": "CUDA"}),
    ("RuntimeError: Error parsing CachingAllocator settings, expected ,", "conf-error", {"expected": ","}),
    ("RuntimeError: CachingAllocator option max_split_size_mb too small, must be > 20", "conf-error", {"key": "max_split_size_mb"}),
    ("RuntimeError: garbage_collect_threshold too big, set it 0.0~1.0", "conf-error", {"key": "garbage_collect_threshold"}),
    ("RuntimeError: For roundups, the divisons has to be power of 2 ", "conf-error", {}),
    ("ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'", "conf-error", {"got": "true"}),
    ("RuntimeError: Expected a single True/False argument for expandable_segments", "conf-error", {"key": "expandable_segments"}),
    ("  what():  Index out of bounds in ConfigTokenizer", "conf-error", {}),
    ("ValueError: Error parsing the allocator config: reached the end of the configuration string", "conf-error", {}),
    ("node7:41:77 [2] NCCL WARN Cuda failure 'out of memory'", "bare-oom", {}),
    ("ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'", "bare-oom", {}),
    ("Last error:\nFailed to CUDA calloc async 2432 bytes", "bare-oom", {"requested": 2432}),
    ('RuntimeError: !handles_.at(k) INTERNAL ASSERT FAILED at "c10/cuda/CUDACachingAllocator.cpp":501', "bare-oom", {}),
    ('RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "a.cpp":7', "nvml-assert", {"line": 7}),
    ("DefaultCPUAllocator: can't allocate memory", "host-oom", {}),
    ("RuntimeError: unable to mmap 4096 bytes from file <./a b.safetensors>: Cannot allocate memory (12)", "host-oom", {"requested": 4096}),
    ("RuntimeError: $ Torch: unable to mmap memory: you tried to mmap 2GB. at TH/THAllocator.c:320", "host-oom", {"requested": 2 << 30}),
    ("slurmstepd: error: Detected 2 oom_kill events in StepId=7.0.", "host-oom", {}),
    ("srun: error: node12: task 3: Out Of Memory", "host-oom", {}),
    ("OSError: /x/libcublas.so.12: symbol cublasLtX version libcublasLt.so.12 not defined in file libcublasLt.so.12 with link time reference", "library-load", {"library": "libcublas.so.12"}),
    ("The actor died unexpectedly before finishing this task.", "killed", {}),
    ("RuntimeError: Unknown allocator backend, options are native and cudaMallocAsync", "conf-error", {}),
    ("RuntimeError: stoi", "conf-error", {"function": "stoi"}),
    ("RuntimeError: invalid low watermark ratio 1.4", "conf-error", {"which": "low"}),
    ("RuntimeError: !block->expandable_segment_ INTERNAL ASSERT FAILED at", "conf-conflict", {}),
    ("UserWarning: expandable_segments not supported on this platform (Triggered internally at", "conf-unsupported", {}),
    ("RuntimeError: Tensors allocated with expandable_segments:True cannot be shared between processes.", "conf-unsupported", {}),
    ("AssertionError: Expandable segments are not compatible with memory pool.", "conf-unsupported", {}),
    ("UserWarning: backend:cudaMallocAsync ignores max_split_size_mb,roundup_power2_divisions, and garbage_collect_threshold.", "conf-ignored", {}),
    ("Warning: PYTORCH_CUDA_ALLOC_CONF is deprecated, use PYTORCH_ALLOC_CONF instead", "conf-renamed", {}),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 103219200 bytes. Error code 12 (Cannot allocate memory)", "host-oom", {"requested": 103219200}),
    ("RuntimeError: $ Torch: not enough memory: you tried to allocate 2GB. Buy new RAM!", "host-oom", {"requested": 2 << 30}),
    ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.50 GiB for an array with shape (2, 3) and data type float32", "host-oom", {"requested": 3 << 29}),
    ("MemoryError", "host-oom", {}),
    ("OSError: [Errno 12] Cannot allocate memory", "host-oom", {}),
    ("OSError: [WinError 1455] The paging file is too small for this operation to complete.", "host-oom", {}),
    ("[12345.6] Out of memory: Killed process 4242 (python3) total-vm:1kB", "host-oom", {"program": "python3"}),
    ("    Reason:       OOMKilled\n    Exit Code:    137", "host-oom", {}),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "host-oom", {}),
    ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ", "host-oom", {}),
    ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible", "shm-full", {}),
    ("RuntimeError: unable to allocate shared memory(shm) for file </torch_77>: Resource temporarily unavailable (11)", "shm-full", {}),
    ("Process finished with exit code 137 (interrupted by signal 9:SIGKILL)", "killed", {}),
    ("  exitcode  : -9 (pid: 99)", "killed", {}),
    ("subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.", "killed", {}),
    ("./run.sh: line 3:  4242 Killed                  python train.py", "killed", {}),
    ("/bin/sh: line 1: 51 Killed python -u train.py", "killed", {}),
    ("[1]+  Killed                  python train.py", "killed", {}),
    ("[1]    48213 killed     python3 train.py", "killed", {}),
    ("zsh: killed     python3 train.py", "killed", {}),
    ("Killed: 9", "killed", {}),
    ("OSError: [Errno 12] 无法分配内存", "host-oom", {}),
    ('Warmup(Generation("Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`"))', "bare-oom", {}),
    ("Not enough memory to handle 16000 total tokens with 2 prefill tokens. You need to decrease `--max-batch-total-tokens`", "bare-oom", {}),
    ("kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=7", "host-oom", {}),
    ("systemd-oomd[7]: Marked /user.slice/a.scope for killing due to memory used (9) / total (10)", "host-oom", {}),
    ("systemd-oomd[7]: Killed /user.slice/a.scope due to memory pressure for /user.slice being 80%", "host-oom", {}),
    ("earlyoom[9]: sending SIGTERM to process 4711 uid 1000", "host-oom", {}),
    ("=>> PBS: job killed: mem 33564892kb exceeded limit 33554432kb", "host-oom", {}),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "host-oom", {}),
    ("Your session crashed after using all available RAM.", "host-oom", {}),
    ("Your notebook tried to allocate more memory than is available. It has restarted.", "host-oom", {}),
    ("['/usr/bin/python3', 'train.py'] exits with return code = -7", "shm-full", {}),
    ("  exitcode  : -7 (pid: 4711)", "shm-full", {}),
    ("Process finished with exit code 135 (interrupted by signal 7: SIGBUS)", "shm-full", {}),
    ("  traceback : Signal 7 (SIGBUS) received by PID 4711", "shm-full", {}),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL", "killed", {}),
    ("was 12.49GB / 13.15GB (0.950003), which exceeds the memory usage threshold of 0.95. Ray killed this worker", "host-oom", {}),
    ("RayOutOfMemoryError: More than 95% of the memory on node laptop-7 is used (11.8 / 12.3 GB).", "host-oom", {}),
    ("failed to alloc 4096 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "host-oom", {"requested": 4096}),
    ("gpu_host_allocator.h:44] could not allocate pinned host memory of size: 8192", "host-oom", {"requested": 8192}),
    ("[HAMI-core ERROR (pid:7 thread=9 allocator.c:53)]: Device 0 OOM 2048 / 1024", "vgpu-limit", {"wanted": 2048, "limit": 1024}),
    ("RuntimeError: The kernel on this machine does not support the pidfd_getfd syscall needed to use IPC", "conf-unsupported", {}),
    ("RuntimeError: CUDA out of memory occurred when warming up sampler with 512 dummy requests. Please try lowering", "bare-oom", {"sequences": 512}),
    ("RuntimeError: unable to mmap 4096 bytes from file </data/a.bin>: Невозможно выделить память (12)", "host-oom", {"requested": 4096}),
    ("RuntimeError: unable to open shared memory object </torch_77_2> in read-write mode: 设备上没有空间 (28)", "shm-full", {}),
    ("RuntimeError: DataLoader worker (pid 77) is killed by signal: 已杀死. ", "host-oom", {}),
    ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus-Zugriffsfehler. It is possible", "shm-full", {}),
    ("バスエラー (コアダンプ)", "shm-full", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind", "values"), MESSAGES, ids=[f"{n}-{m[1]}" for n, m in enumerate(MESSAGES)]
)
def test_each_message_is_recognised_with_its_values(
    text: str, kind: str, values: dict[str, object]
):
    found = [i for i in parse(f"some line\n{text}\nanother line\n").incidents if i.kind == kind]
    assert found, [(i.kind, i.text) for i in parse(text).incidents]
    readings = {name: r.value for i in found for name, r in i.readings.items()}
    assert values.items() <= readings.items()


@pytest.mark.parametrize(
    ("text", "kind"),
    [(text, kind) for text, kind, _ in MESSAGES if "\n" not in text and kind != "device-assert"],
)
def test_a_message_that_a_console_has_wrapped_is_recognised(text: str, kind: str):
    words = text.split(" ")
    wrapped = [" ".join(words[n : n + 5]) for n in range(0, len(words), 5)]
    assert kind in {incident.kind for incident in parse("\n".join(wrapped)).incidents}


NEAR_MISSES = [
    ("RuntimeError: cannot resize variables that require grad", "requires-grad"),
    ("RuntimeError: cannot resize variables that has a forward grad", "forward-grad"),
    ("RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.", "leaf-in-place"),
    ("RuntimeError: stack(): functions with out=... arguments don't support automatic differentiation", "out-autograd"),
    ("RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.", "inference-tensor"),
    ("RuntimeError: as_strided: Negative strides are not supported at the moment", "negative-strides"),
    ("RuntimeError: Tensor: invalid storage offset -1", "storage-offset"),
    ('RuntimeError: Attempted to set the storage of a tensor on device "cpu" to a storage on different device "cuda:0".', "other-device"),
    ("RuntimeError: Attempted to resize a view tensor to a larger size. This is not allowed in the functionalization pass", "functionalization"),
    ("RuntimeError: NYI: resize_ batch rule for batch dim != 0", "vmap"),
    ("RuntimeError: Can only resize quantized tensors with per-tensor schemes!", "quantized"),
    ("NotImplementedError: Could not run 'aten::resize_' with arguments from the 'SparseCPU' backend.", "sparse"),
    ("RuntimeError: Internal error: NestedTensorImpl doesn't support sizes. Please file an issue.", "nested"),
    ("RuntimeError: requested resize to 9 (9 elements in total), ... autograd's resize can only change the shape of a given tensor", "deprecated-resize"),
    ("RuntimeError: set_sizes_contiguous is not allowed on a Tensor created from .data or .detach().", "detached"),
    ("RuntimeError: Cannot resize named tensor with resize_ or resize_as_", "named"),
    ("RuntimeError: storage has wrong byte size: expected 8 got 4", "truncated-checkpoint"),
    ("RuntimeError: UntypedStorage.resize_: got unexpected device type xla", "exotic-device"),
    ("RuntimeError: shape '[5]' is invalid for input of size 4", "view-shape"),
    ("RuntimeError: view size is not compatible with input tensor's size and stride", "view"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name"), NEAR_MISSES, ids=[f"{n}-{m[1]}" for n, m in enumerate(NEAR_MISSES)]
)
def test_near_misses_of_the_resize_message_are_told_apart(text: str, name: str):
    (incident,) = parse(text).incidents
    assert (incident.kind, incident.wording) == ("resize-near-miss", name)


def test_a_view_out_of_bounds_gives_both_sizes_in_bytes():
    text = "RuntimeError: setStorage: sizes [8], strides [1], storage offset 0, and itemsize 4 requiring a storage size of 32 are out of bounds for storage of size 16"
    (incident,) = parse(text).incidents
    assert (incident.readings["needed"].value, incident.readings["owned"].value) == (32, 16)


@pytest.mark.parametrize("word", signals.KILLED)
@pytest.mark.parametrize(
    "console",
    [
        "{}",
        "[1]+  {}               python train.py",
        "run.sh: line 3: 4711 {}     python train.py",
        "run.sh: 第 3 行： 4711 {}     python train.py",
        "run.sh: 3. sor: 4711 {}     python train.py",
        "run.sh : ligne 3 : 4711 {}     python train.py",
        "    {}",
        "Loading shards:  50%|#####     | 4/8 [00:12<00:13, 3.2s/it]{}",
        "Loading shards:  50%|#####     | 4/8 [00:12<00:13, 3.2s/it][1]+ {}     python chat.py",
    ],
)
def test_a_kill_is_recognised_in_the_language_of_the_shell(word: str, console: str):
    (incident,) = parse(f"epoch 3\n{console.format(word)}\n$ \n").incidents
    assert (incident.kind, word in incident.text) == ("killed", True)


@pytest.mark.parametrize("word", signals.BUS_ERROR)
def test_a_bus_error_is_recognised_in_the_language_of_the_shell(word: str):
    (incident,) = parse(f"epoch 3\n{word} (core dumped)\n").incidents
    assert incident.kind == "shm-full"


PROSE = [
    "I ran out of memory yesterday and bought a larger card.",
    "The worker was assigned to rank 3 and the memory pool is 12 GiB large; 4 GiB free.",
    "Tried to allocate time for a review. The index is out of range of our interest.",
    "KeyError: 'memory'",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "loss 0.31 step 40 lr 1e-4 mem 12.1 GiB",
    "the process exited with code 1",
    "CUDA_HOME is not set; using the default compiler. 137 tests passed, -9 lines changed.",
    "Killed two birds with one stone.",
    "Round 2: 15 Killed",
    "MemoryError: Cannot allocate write+execute memory for ffi.callback().",
    "OSError: [Errno 28] No space left on device: '/checkpoints/step-135'",
    "command terminated with exit code 143; the code returned 1e-7, exit 1350",
    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGABRT",
    "O processo foi Morto ontem por mim.",
    "wandb: 旧任务已杀死 3 个",
    "RuntimeError: unable to open shared memory object </torch_77_2> in read-write mode: Too many open files (24)",
]


@pytest.mark.parametrize("text", PROSE)
def test_prose_and_other_errors_hold_no_incident(text: str):
    assert parse(text).incidents == ()
