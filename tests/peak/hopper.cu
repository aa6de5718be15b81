// A product by hand from the texts that `peak-h200-fp16` imports, which stand before it: warp group 0 copies, the others multiply.
#define GROUPS 2
#define GROUP_M GROUP_ROWS
#define TILE_M (GROUPS * GROUP_M)
#define TILE_N TILE_COLUMNS
#define TILE_K 64
#define STAGES 4
#define CHUNKS (2 * 64 * 64)
__global__ static void __launch_bounds__(128 * (GROUPS + 1), 1)
    product(const __grid_constant__ CUtensorMap map_c, const __grid_constant__ CUtensorMap map_a,
            const __grid_constant__ CUtensorMap map_b, int n) {
    extern __shared__ unsigned char shared[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    __half *tile_a = reinterpret_cast<__half *>(tiles_begin(shared));
    __half *tile_b = tile_a + STAGES * TILE_M * TILE_K, *buffers = tile_b + STAGES * TILE_K * TILE_N;
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&full[stage], 1);
            barrier_init(&empty[stage], GROUPS);
        }
    __syncthreads();
    const int wide = n / TILE_N, tiles = wide * (n / TILE_M), steps = n / TILE_K, group = static_cast<int>(threadIdx.x / 128) - 1;
    int step = 0;
    if (group < 0) {
        registers_give_up_to<40>();
        if (threadIdx.x == 0)
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
                for (int k = 0; k < steps; ++k, ++step) {
                    const int stage = step % STAGES;
                    barrier_wait(&empty[stage], step / STAGES % 2 ^ 1);
                    barrier_expect(&full[stage], (TILE_M + TILE_N) * TILE_K * 2);
                    bulk_load<TILE_M, TILE_K>(tile_a + stage * TILE_M * TILE_K, &map_a, tile / wide * TILE_M, k * TILE_K, &full[stage]);
                    bulk_load<TILE_K, TILE_N>(tile_b + stage * TILE_K * TILE_N, &map_b, k * TILE_K, tile % wide * TILE_N, &full[stage]);
                }
    } else {
        registers_take_up_to<232>();
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            float sums[GROUP_M / 64][TILE_N / 2];
#pragma unroll
            for (int i = 0; i < GROUP_M / 64; ++i) group_clear(sums[i]);
            for (int k = 0; k < steps; ++k, ++step) {
                const int stage = step % STAGES;
                const __half *a = tile_a + stage * TILE_M * TILE_K, *b = tile_b + stage * TILE_K * TILE_N;
                barrier_wait(&full[stage], step / STAGES % 2);
                group_begin();
#pragma unroll
                for (int i = 0; i < GROUP_M / 64; ++i)
                    group_multiply(sums[i], a + swizzled(TILE_M, group * GROUP_M + i * 64, 0), b);
                group_commit();
                group_wait<1>();
                if (k > 0 && threadIdx.x % 128 == 0) barrier_arrive(&empty[(step - 1) % STAGES]);
            }
            group_wait<0>();
            if (threadIdx.x % 128 == 0) barrier_arrive(&empty[(step - 1) % STAGES]);
#pragma unroll
            for (int i = 0; i < GROUP_M / 64; ++i)
                bulk_store(&map_c, tile / wide * TILE_M + group * GROUP_M + i * 64, tile % wide * TILE_N, sums[i],
                           buffers + group * CHUNKS, group);
        }
        bulk_store_end();
    }
}
extern "C" int matmul(__half *c, const __half *a, const __half *b, int32_t n, cudaStream_t stream) {
    const int bytes = (STAGES * (TILE_M + TILE_N) * TILE_K + GROUPS * CHUNKS) * 2 + 1024, tiles = n / TILE_M * (n / TILE_N);
    if (cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) return 1;
    CUtensorMap map_a, map_b, map_c;
    const bool described = tensor_map(&map_a, a, n, n, TILE_M) && tensor_map(&map_b, b, n, n, TILE_K) && tensor_map(&map_c, c, n, n, 64);
    if (!described) return 2;
    product<<<tiles < 132 ? tiles : 132, 128 * (GROUPS + 1), bytes, stream>>>(map_c, map_a, map_b, n);
    return 0;
}
