// A HIP host program for compilers without ROCm: the few declarations that clang needs, and one kernel.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

struct dim3 {
    unsigned x, y, z;
};
typedef struct ihipStream_t *hipStream_t;
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, __SIZE_TYPE__, hipStream_t);
extern "C" unsigned __hipPopCallConfiguration(dim3 *, dim3 *, __SIZE_TYPE__ *, hipStream_t *);

namespace stencil {
template <typename T> __global__ void scale(T *out, const T *in, T factor) {
    __shared__ T tile[64];
    int i = __builtin_amdgcn_workitem_id_x();
    tile[i] = in[i];
    __builtin_amdgcn_s_barrier();
    out[i] = tile[63 - i] * factor;
}
template __global__ void scale<float>(float *, const float *, float);
} // namespace stencil
