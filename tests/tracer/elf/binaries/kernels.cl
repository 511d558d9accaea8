// Kernels whose resources the tests know by heart; README.md says how each binary is built from this file.
#define LANE __builtin_amdgcn_workitem_id_x()

// 400 bytes of LDS and the block size that the program promises.
kernel __attribute__((reqd_work_group_size(64, 2, 1))) void promised(global float *data, int n) {
    local float tile[100];
    tile[LANE % 100] = data[LANE];
    __builtin_amdgcn_s_barrier();
    data[LANE] = tile[n % 100];
}

// Nothing but registers.
kernel __attribute__((amdgpu_flat_work_group_size(1, 256))) void scale(global float *out, global const float *in, float factor) {
    out[LANE] = in[LANE] * factor;
}

// An array indexed at run time lives in scratch memory.
kernel void spilled(global int *data, int n) {
    int kept[32];
    for (int i = 0; i < 32; ++i)
        kept[i] = data[i * n];
    for (int i = 0; i < n; ++i)
        kept[data[i] & 31] += i;
    data[0] = kept[n & 31];
}

// Accumulation registers.
kernel void accumulates(global float *data) {
    __asm__ volatile("v_accvgpr_write_b32 a20, %0" : : "v"(data[LANE]) : "a20");
}
