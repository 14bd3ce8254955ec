"""One cause a file, each a module-level RULE; RULES lists them in the order of reports."""

from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.rules import (
    conf_error,
    conf_ineffective,
    conf_unsupported_platform,
    cublas_handle_no_vram,
    cublas_library_mismatch,
    cublas_masked_device_assert,
    foreign_process,
    fragmentation,
    graph_private_pool,
    host_oom,
    kv_growth,
    leak,
    memory_limit,
    non_pytorch_memory,
    ragged_batch,
    resize_not_resizable,
    true_capacity,
)

RULES: tuple[Rule, ...] = (
    true_capacity.RULE,
    fragmentation.RULE,
    foreign_process.RULE,
    memory_limit.RULE,
    non_pytorch_memory.RULE,
    graph_private_pool.RULE,
    kv_growth.RULE,
    leak.RULE,
    cublas_handle_no_vram.RULE,
    cublas_masked_device_assert.RULE,
    cublas_library_mismatch.RULE,
    resize_not_resizable.RULE,
    ragged_batch.RULE,
    conf_error.RULE,
    conf_unsupported_platform.RULE,
    conf_ineffective.RULE,
    host_oom.RULE,
)
