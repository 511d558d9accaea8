// More than 4 KB of parameters.
struct Wide {
    char bytes[4200];
};
extern "C" __global__ void wide(Wide wide, float *data) {
    *data = wide.bytes[int(*data)];
}
