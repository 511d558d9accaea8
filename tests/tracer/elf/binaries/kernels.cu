// Kernels whose resources the tests know by heart; README.md says how each binary is built from this file.
#include "lines.cuh"

#if __CUDACC_VER_MAJOR__ >= 13 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define BLOCK_OF_128 __block_size__((64, 2, 1))
#else
#define BLOCK_OF_128
#endif

__constant__ float weights[16];

struct Shape {
    int rows;
    int columns;
    long long stride;
};

// A C++ name, four parameters, constant memory, no shared memory.
namespace stencil {
template <typename T> __global__ void scale(T *out, const T *in, Shape shape, char flag) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < shape.rows && flag)
        out[i * shape.stride] = scaled(in, weights[i % 16], i);
}
template __global__ void scale<float>(float *, const float *, Shape, char);
} // namespace stencil

// 400 bytes of static shared memory, at most 128 threads.
extern "C" __global__ void __launch_bounds__(128, 2) bounded(float *data, int n) {
    __shared__ float tile[100];
    tile[threadIdx.x % 100] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = tile[n % 100];
}

// An array indexed at run time lives in local memory; barriers 0 and 3.
extern "C" __global__ void spilled(int *data, int n) {
    int kept[32];
#pragma unroll 1
    for (int i = 0; i < 32; ++i)
        kept[i] = data[i * n];
    asm volatile("bar.sync 3, 64;");
#pragma unroll 1
    for (int i = 0; i < n; ++i)
        kept[data[i] & 31] += i;
    __syncthreads();
    data[threadIdx.x] = kept[n & 31];
}

// The exact block size, where the compiler knows the attribute.
extern "C" __global__ void BLOCK_OF_128 promised(float *data) {
    data[threadIdx.x] = 0.0f;
}
