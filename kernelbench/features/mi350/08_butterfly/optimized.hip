// A block a row: each wave of 64 lanes adds up by a butterfly, in six steps and without a barrier. Compiled for gfx950 and not
// run.

namespace {

// The number of another lane of the same 16, as a data-parallel primitive of the addition itself.
template <int CONTROL>
__device__ float beside(float own) {
    return __builtin_bit_cast(float, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, own), CONTROL, 0xf, 0xf, true));
}

// The sum over the wave, in every lane of it.
__device__ float over_wave(float own) {
    own += beside<0xB1>(own);   // quad_perm [1, 0, 3, 2]: lane ^ 1
    own += beside<0x4E>(own);   // quad_perm [2, 3, 0, 1]: lane ^ 2
    own += beside<0x141>(own);  // row_half_mirror: the other four of eight, whose sums are all the same by now
    own += beside<0x140>(own);  // row_mirror: the other eight of sixteen
    own += __shfl_xor(own, 16);
    own += __shfl_xor(own, 32);
    return own;
}

__global__ __launch_bounds__(256) void sums(float *out, const float *x, int64_t rows, int64_t columns) {
    __shared__ float part[4];
    const float4 *row = reinterpret_cast<const float4 *>(x + blockIdx.x * columns);
    float own = 0.0f;
    for (int64_t i = threadIdx.x; i < columns / 4; i += 256) {
        const float4 held = row[i];
        own += held.x + held.y + held.z + held.w;
    }
    own = over_wave(own);
    if (threadIdx.x % 64 == 0) part[threadIdx.x / 64] = own;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}

}  // namespace

extern "C" void row_sums(float *out, const float *x, int64_t rows, int64_t columns, hipStream_t stream) {
    sums<<<(unsigned)rows, 256, 0, stream>>>(out, x, rows, columns);
}
