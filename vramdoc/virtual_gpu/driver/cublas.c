/* cuBLAS: a handle takes device memory, and its creation fails when there is none; the products themselves do nothing. */
#define _GNU_SOURCE
#include "device.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOC_FAILED = 3, BLAS_INVALID_VALUE = 7, BLAS_NOT_SUPPORTED = 15, NOT_INITIALIZED = 1 };
enum { POINTER_MODE_HOST = 0, POINTER_MODE_DEVICE = 1 };
typedef struct {
    int device, pointer_mode, math_mode;
    Stream *stream;
} Handle;

EXPORT int cublasCreate_v2(Handle **handle) {
    LOCKED;
    int device = current_device();
    uint64_t bytes = settings()->cublas_handle;
    *handle = NULL;
    if (!create_context(device)) return device_at(device) ? ALLOC_FAILED : NOT_INITIALIZED;
    if (!charge(device, bytes)) {
        log_call("cublasCreate", device, bytes, 0, ALLOC_FAILED);
        return ALLOC_FAILED;
    }
    *handle = calloc(1, sizeof **handle);
    if (!*handle) abort();
    (*handle)->device = device;
    log_call("cublasCreate", device, bytes, 0, SUCCESS);
    return SUCCESS;
}
EXPORT int cublasDestroy_v2(Handle *handle) {
    LOCKED;
    if (!handle) return NOT_INITIALIZED;
    refund(handle->device, settings()->cublas_handle);
    log_call("cublasDestroy", handle->device, settings()->cublas_handle, 0, SUCCESS);
    free(handle);
    return SUCCESS;
}
EXPORT int cublasSetStream_v2(Handle *handle, Stream *stream) {
    handle->stream = stream;
    return SUCCESS;
}
EXPORT int cublasGetStream_v2(Handle *handle, Stream **stream) {
    *stream = handle->stream;
    return SUCCESS;
}
EXPORT int cublasSetPointerMode_v2(Handle *handle, int mode) {
    handle->pointer_mode = mode;
    return SUCCESS;
}
EXPORT int cublasGetPointerMode_v2(Handle *handle, int *mode) {
    *mode = handle->pointer_mode;
    return SUCCESS;
}
EXPORT int cublasSetMathMode(Handle *handle, int mode) {
    handle->math_mode = mode;
    return SUCCESS;
}
EXPORT int cublasGetMathMode(Handle *handle, int *mode) {
    *mode = handle->math_mode;
    return SUCCESS;
}
/* The workspace is the caller's memory (torch takes it from its own allocator), already on the account. */
NOTHING_TO_DO(cublasSetWorkspace_v2)
NOTHING_TO_DO(cublasSetAtomicsMode)
NOTHING_TO_DO(cublasSetSmCountTarget)

/* ---- work on matrices and vectors in device memory: enqueued, and done ------------------------------------------------ */
static int enqueue(Handle *handle) {
    LOCKED;
    note_work(handle->stream, KERNEL_NODE);
    return SUCCESS;
}
#define WORK(name)                                                                                                     \
    EXPORT int name(Handle *handle) { return enqueue(handle); }
#define SDCZ(operation) WORK(cublasS##operation) WORK(cublasD##operation) WORK(cublasC##operation) WORK(cublasZ##operation)
#define SD(operation) WORK(cublasS##operation) WORK(cublasD##operation)
#define CZ(operation) WORK(cublasC##operation) WORK(cublasZ##operation)
SDCZ(gemm_v2) SDCZ(gemmBatched) SDCZ(gemmStridedBatched) SDCZ(gemv_v2) SDCZ(symm_v2) SDCZ(symv_v2) SDCZ(syr_v2)
SDCZ(syr2_v2) SDCZ(syrk_v2) SDCZ(syr2k_v2) SDCZ(trmm_v2) SDCZ(trmv_v2) SDCZ(trsm_v2) SDCZ(trsv_v2) SDCZ(trsmBatched)
SDCZ(getrfBatched) SDCZ(getriBatched) SDCZ(axpy_v2) SDCZ(copy_v2) SDCZ(scal_v2) SDCZ(swap_v2) SDCZ(rot_v2)
SD(ger_v2) SD(rotm_v2)
CZ(gerc_v2) CZ(geru_v2) CZ(hemm_v2) CZ(hemv_v2) CZ(her_v2) CZ(her2_v2) CZ(herk_v2) CZ(her2k_v2)
WORK(cublasCsscal_v2) WORK(cublasZdscal_v2) WORK(cublasCsrot_v2) WORK(cublasZdrot_v2) WORK(cublasSgemmEx)
WORK(cublasGemmEx) WORK(cublasGemmBatchedEx) WORK(cublasGemmStridedBatchedEx)

/* ---- work whose result may go to host memory: only the device's side is modelled -------------------------------------- */
#define REDUCTION(name)                                                                                                \
    EXPORT int name(Handle *handle) {                                                                                  \
        static atomic_flag said = ATOMIC_FLAG_INIT;                                                                    \
        if (handle->pointer_mode == POINTER_MODE_DEVICE) return enqueue(handle);                                       \
        return refuse(#name " with a result in host memory", NULL, BLAS_NOT_SUPPORTED, &said);                 \
    }
REDUCTION(cublasSdot_v2) REDUCTION(cublasDdot_v2) REDUCTION(cublasCdotu_v2) REDUCTION(cublasCdotc_v2)
REDUCTION(cublasZdotu_v2) REDUCTION(cublasZdotc_v2) REDUCTION(cublasDotEx) REDUCTION(cublasSnrm2_v2)
REDUCTION(cublasDnrm2_v2) REDUCTION(cublasScnrm2_v2) REDUCTION(cublasDznrm2_v2) REDUCTION(cublasSasum_v2)
REDUCTION(cublasDasum_v2) REDUCTION(cublasScasum_v2) REDUCTION(cublasDzasum_v2) REDUCTION(cublasIsamax_v2)
REDUCTION(cublasIdamax_v2) REDUCTION(cublasIcamax_v2) REDUCTION(cublasIzamax_v2) REDUCTION(cublasIsamin_v2)
REDUCTION(cublasIdamin_v2) REDUCTION(cublasIcamin_v2) REDUCTION(cublasIzamin_v2)

/* Batched factorisations report on the host whether their arguments were valid: they were. */
#define GEQRF(name)                                                                                                    \
    EXPORT int name(Handle *handle, int m, int n, void *a, int lda, void *tau, int *info) {                            \
        (void)m, (void)n, (void)a, (void)lda, (void)tau;                                                               \
        *info = 0;                                                                                                     \
        return enqueue(handle);                                                                                        \
    }
GEQRF(cublasSgeqrfBatched) GEQRF(cublasDgeqrfBatched) GEQRF(cublasCgeqrfBatched) GEQRF(cublasZgeqrfBatched)
#define GETRS(name)                                                                                                    \
    EXPORT int name(Handle *handle, int trans, int n, int nrhs, void *a, int lda, void *pivots, void *b, int ldb,      \
                    int *info) {                                                                                       \
        (void)trans, (void)n, (void)nrhs, (void)a, (void)lda, (void)pivots, (void)b, (void)ldb;                        \
        *info = 0;                                                                                                     \
        return enqueue(handle);                                                                                        \
    }
GETRS(cublasSgetrsBatched) GETRS(cublasDgetrsBatched) GETRS(cublasCgetrsBatched) GETRS(cublasZgetrsBatched)
#define GELS(name)                                                                                                     \
    EXPORT int name(Handle *handle, int trans, int m, int n, int nrhs, void *a, int lda, void *c, int ldc, int *info) { \
        (void)trans, (void)m, (void)n, (void)nrhs, (void)a, (void)lda, (void)c, (void)ldc;                             \
        *info = 0;                                                                                                     \
        return enqueue(handle);                                                                                        \
    }
GELS(cublasSgelsBatched) GELS(cublasDgelsBatched) GELS(cublasCgelsBatched) GELS(cublasZgelsBatched)

/* ---- cuBLASLt ---------------------------------------------------------------------------------------------------------- */
static int new_descriptor(void **descriptor) {
    *descriptor = malloc(1);
    return *descriptor ? SUCCESS : ALLOC_FAILED;
}
static int drop_descriptor(void *descriptor) {
    free(descriptor);
    return SUCCESS;
}
EXPORT int cublasLtMatmulDescCreate(void **descriptor) { return new_descriptor(descriptor); }
EXPORT int cublasLtMatrixLayoutCreate(void **descriptor) { return new_descriptor(descriptor); }
EXPORT int cublasLtMatmulPreferenceCreate(void **descriptor) { return new_descriptor(descriptor); }
EXPORT int cublasLtMatmulDescDestroy(void *descriptor) { return drop_descriptor(descriptor); }
EXPORT int cublasLtMatrixLayoutDestroy(void *descriptor) { return drop_descriptor(descriptor); }
EXPORT int cublasLtMatmulPreferenceDestroy(void *descriptor) { return drop_descriptor(descriptor); }
NOTHING_TO_DO(cublasLtMatmulDescSetAttribute)
NOTHING_TO_DO(cublasLtMatrixLayoutSetAttribute)
NOTHING_TO_DO(cublasLtMatmulPreferenceSetAttribute)

typedef struct { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int appendix[4];
} HeuristicResult;
/* One algorithm, without workspace: torch hands its own workspace in whatever the answer is. */
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                          int wanted, HeuristicResult *results, int *found) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted < 1) return BLAS_INVALID_VALUE;
    memset(results, 0, sizeof *results);
    *found = 1;
    return SUCCESS;
}
EXPORT int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout, const void *b,
                          void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                          const void *algorithm, void *workspace, size_t workspace_bytes, Stream *stream) {
    LOCKED;
    (void)handle, (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c;
    (void)c_layout, (void)d, (void)d_layout, (void)algorithm, (void)workspace, (void)workspace_bytes;
    note_work(stream, KERNEL_NODE);
    return SUCCESS;
}
/* Torch asks only to choose its code path; the CUDA release that it was built with is the answer. */
EXPORT size_t cublasLtGetVersion(void) { return CUDART_VERSION / 1000 * 10000 + CUDART_VERSION % 1000 * 10; }
