// Inlined into the kernels of kernels.cu, so that their line tables name two files.
__device__ __forceinline__ float scaled(const float *in, float weight, int i) {
    return in[i] * weight;
}
