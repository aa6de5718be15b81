#include <cstdint>
__device__ uint32_t at(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void wait(uint64_t* bar, uint32_t parity) {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again;}"
                 ::"r"(at(bar)), "r"(parity) : "memory");
}
// One warp fills two places by bulk copies, another reads them and gives each back: with a fence first, or without.
template <bool FENCE> __global__ void ring(const float4* x, float* y, int n) {
    __shared__ __align__(128) float4 place[2][128];
    __shared__ __align__(8) uint64_t full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at(&full[i])));
            asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at(&empty[i])));
        }
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 32) {
#pragma unroll 1
        for (int i = 0; i < n; ++i) {
            if (i > 1) wait(&empty[i & 1], (i / 2 + 1) & 1);
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 2048;" ::"r"(at(&full[i & 1])) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];"
                         ::"r"(at(place[i & 1])), "l"(x + i * 128), "r"(at(&full[i & 1])) : "memory");
        }
    } else if (threadIdx.x < 32) {
        float sum = 0;
#pragma unroll 1
        for (int i = 0; i < n; ++i) {
            wait(&full[i & 1], i / 2 & 1);
            float4 v[4];
            for (int k = 0; k < 4; ++k) v[k] = place[i & 1][threadIdx.x + 32 * k];
            if (FENCE) asm volatile("fence.proxy.async;" ::: "memory");
            asm volatile("{.reg .b64 s; mbarrier.arrive.shared.b64 s, [%0];}" ::"r"(at(&empty[i & 1])) : "memory");
            for (int k = 0; k < 4; ++k) sum += v[k].x * v[k].y + v[k].z * v[k].w;
        }
        y[threadIdx.x] = sum;
    }
}
void go(const float4* x, float* y, int n) {
    ring<false><<<1, 64>>>(x, y, n);
    ring<true><<<1, 64>>>(x, y, n);
}
