// Stores a warp group's sums of 64 rows, rounded to halves, to this row and column of a matrix described with boxes of 64 rows, by way
// of `buffers` in fast memory: two chunks of 64 by 64 halves that belong to this warp group alone, at a multiple of 1024 bytes. All 128
// threads call it; `group` is the warp group's number, below 15. The copy engine still writes when it returns.
template <int count>
__device__ __forceinline__ void bulk_store(const CUtensorMap *map, int row, int column, const float (&sums)[count], __half *buffers,
                                           int group) {
    const int lane = threadIdx.x % 32, from = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const bool first = threadIdx.x % 128 == 0;
#pragma unroll
    for (int chunk = 0; chunk < count / 32; ++chunk) {
        __half *buffer = buffers + chunk % 2 * 64 * 64;
        // An odd number of chunks leaves the last one in the buffer that the next call begins with.
        if (first && chunk == 0 && count / 32 % 2 == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        if (first) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            unsigned pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = chunk * 32 + part * 8 + i * 2;
                const __half2 pair = __floats2half2_rn(sums[at], sums[at + 1]);
                pairs[i] = *reinterpret_cast<const unsigned *>(&pair);
            }
            const unsigned to = static_cast<unsigned>(
                __cvta_generic_to_shared(buffer + swizzled(64, from, part * 16 + lane / 16 * 8)));
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::
                             "r"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        if (first) {
            const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(buffer));
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::
                             "l"(map), "r"(column + chunk * 64), "r"(row), "r"(at) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    }
}
// Waits until the copy engine has read everything that this thread gave it: by all threads that called bulk_store, before they leave.
__device__ __forceinline__ void bulk_store_end() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
