// A product of single precision by hand from the texts that `peak-h200-bf16x6` imports, which stand before it: six products of parts,
// one behind the other; warp group 0 copies, the others multiply.
#define GROUPS 2
#define GROUP_M 64
#define TILE_M (GROUPS * GROUP_M)
#define TILE_N 256
#define TILE_K 64
#define STAGES 4
__global__ static void split(__nv_bfloat16 *parts, const float *numbers, int count) {
    const int at = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    const float4 four = *reinterpret_cast<const float4 *>(numbers + at);
    __nv_bfloat16 of[4][3];
    bf16_parts(four.x, of[0]);
    bf16_parts(four.y, of[1]);
    bf16_parts(four.z, of[2]);
    bf16_parts(four.w, of[3]);
    for (int part = 0; part < 3; ++part)
        for (int i = 0; i < 4; ++i) parts[static_cast<size_t>(part) * count + at + i] = of[i][part];
}
__global__ static void __launch_bounds__(128 * (GROUPS + 1), 1)
    product(float *c, const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, int n) {
    extern __shared__ unsigned char shared[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    __nv_bfloat16 *tile_a = reinterpret_cast<__nv_bfloat16 *>(tiles_begin(shared)), *tile_b = tile_a + STAGES * TILE_M * TILE_K;
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&full[stage], 1);
            barrier_init(&empty[stage], GROUPS);
        }
    __syncthreads();
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N, along = n / TILE_K, steps = PART_PRODUCTS * along;
    const int group = static_cast<int>(threadIdx.x / 128) - 1;
    if (group < 0) {
        registers_give_up_to<40>();
        if (threadIdx.x == 0)
            for (int step = 0; step < steps; ++step) {
                const int stage = step % STAGES, at = step / along, k = step % along * TILE_K;
                barrier_wait(&empty[stage], step / STAGES % 2 ^ 1);
                barrier_expect(&full[stage], (TILE_M + TILE_N) * TILE_K * 2);
                bulk_load<TILE_M, TILE_K>(tile_a + stage * TILE_M * TILE_K, &map_a, part_of_first(at) * n + row, k, &full[stage]);
                bulk_load<TILE_K, TILE_N>(tile_b + stage * TILE_K * TILE_N, &map_b, part_of_second(at) * n + k, column, &full[stage]);
            }
    } else {
        registers_take_up_to<232>();
        float sums[TILE_N / 2];
        group_clear(sums);
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES;
            barrier_wait(&full[stage], step / STAGES % 2);
            group_begin();
            group_multiply(sums, tile_a + stage * TILE_M * TILE_K + swizzled(TILE_M, group * GROUP_M, 0),
                           tile_b + stage * TILE_K * TILE_N);
            group_commit();
            group_wait<1>();
            if (step > 0 && threadIdx.x % 128 == 0) barrier_arrive(&empty[(step - 1) % STAGES]);
        }
        group_wait<0>();
        group_store(c + static_cast<size_t>(row + group * GROUP_M) * n + column, n, sums);
    }
}
extern "C" int matmul(float *c, const float *a, const float *b, int32_t n, cudaStream_t stream) {
    static __nv_bfloat16 *parts = nullptr;
    static int largest = 0;
    const int count = n * n, bytes = STAGES * (TILE_M + TILE_N) * TILE_K * 2 + 1024;
    if (n > largest) {
        if (parts) cudaFree(parts);
        parts = nullptr;
        largest = 0;
        if (cudaMalloc(&parts, static_cast<size_t>(count) * 6 * sizeof(__nv_bfloat16)) != cudaSuccess) return 1;
        largest = n;
    }
    if (cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) return 2;
    __nv_bfloat16 *of_b = parts + static_cast<size_t>(count) * 3;
    CUtensorMap map_a, map_b;
    if (!tensor_map(&map_a, parts, 3 * n, n, TILE_M) || !tensor_map(&map_b, of_b, 3 * n, n, TILE_K)) return 3;
    split<<<count / 1024, 256, 0, stream>>>(parts, a, count);
    split<<<count / 1024, 256, 0, stream>>>(of_b, b, count);
    product<<<dim3(n / TILE_N, n / TILE_M), 128 * (GROUPS + 1), bytes, stream>>>(c, map_a, map_b, n);
    return 0;
}
