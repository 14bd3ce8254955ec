/* Libraries that compute on the device through their own driver connection. Nothing of them is modelled, so each one is
 * stopped at its door, where a clear line can be said, instead of failing somewhere inside with an error of its own. */
#include "device.h"

#define CUSOLVER "cuSOLVER"
#define CUFFT "cuFFT"
#define CUSPARSE "cuSPARSE"
#define CUDNN "cuDNN; with torch.backends.cudnn.enabled = False torch takes its own path"
#define NCCL "NCCL; the gloo backend works"
#define CURAND "cuRAND"

enum { CUSOLVER_NOT_INITIALIZED = 1, CUFFT_NOT_SUPPORTED = 16, CUSPARSE_NOT_SUPPORTED = 10, CUDNN_NOT_SUPPORTED = 3000 };
enum { NCCL_INVALID_USAGE = 5, CURAND_INITIALIZATION_FAILED = 203 };

REFUSE(cusolverDnCreate, CUSOLVER, CUSOLVER_NOT_INITIALIZED)
REFUSE(cusolverSpCreate, CUSOLVER, CUSOLVER_NOT_INITIALIZED)
REFUSE(cusolverRfCreate, CUSOLVER, CUSOLVER_NOT_INITIALIZED)

REFUSE(cufftCreate, CUFFT, CUFFT_NOT_SUPPORTED)
REFUSE(cufftPlan1d, CUFFT, CUFFT_NOT_SUPPORTED)
REFUSE(cufftPlan2d, CUFFT, CUFFT_NOT_SUPPORTED)
REFUSE(cufftPlan3d, CUFFT, CUFFT_NOT_SUPPORTED)
REFUSE(cufftPlanMany, CUFFT, CUFFT_NOT_SUPPORTED)

REFUSE(cusparseCreate, CUSPARSE, CUSPARSE_NOT_SUPPORTED)
REFUSE(cusparseLtInit, CUSPARSE, CUSPARSE_NOT_SUPPORTED)

REFUSE(cudnnCreate, CUDNN, CUDNN_NOT_SUPPORTED)

REFUSE(ncclGetUniqueId, NCCL, NCCL_INVALID_USAGE)
REFUSE(ncclCommInitAll, NCCL, NCCL_INVALID_USAGE)
REFUSE(ncclCommInitRank, NCCL, NCCL_INVALID_USAGE)
REFUSE(ncclCommInitRankConfig, NCCL, NCCL_INVALID_USAGE)
REFUSE(ncclCommInitRankScalable, NCCL, NCCL_INVALID_USAGE)

REFUSE(curandCreateGenerator, CURAND, CURAND_INITIALIZATION_FAILED)
