// Every function of the texts that transformations import, called once: they stand before it. Behind HOPPER is what other GPUs lack.
__global__ static void any(float *c, const __half *a, int n) {
    __shared__ __half tiles[2][16 * 16];
    copy_tile<16, 16>(tiles[0], a, n);
    copy_async(tiles[1] + threadIdx.x * 8, a + threadIdx.x * 8);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    FragmentA one;
    FragmentB other;
    FragmentC sum;
    fragment_clear(sum);
    fragment_load(one, tiles[0], 16);
    fragment_load(other, tiles[1], 16);
    fragment_multiply(sum, one, other);
    fragment_store(c, sum, n);
    __nv_bfloat16 parts[3];
    bf16_parts(c[0], parts);
    for (int product = 0; product < PART_PRODUCTS; ++product)
        c[product] = __bfloat162float(parts[part_of_first(product)]) * __bfloat162float(parts[part_of_second(product)]);
}
#ifdef HOPPER
// One batch of products by tiles of 64 rows, and as many columns as a thread has sums twice.
template <int count>
__device__ static void multiply(__half *c, const CUtensorMap *map, const __half *a, const __half *b, __half *buffers, int n) {
    float sums[count];
    group_clear(sums);
    group_begin();
    group_multiply(sums, a + swizzled(64, 0, 0), b);
    group_multiply(sums, reinterpret_cast<const __nv_bfloat16 *>(a), reinterpret_cast<const __nv_bfloat16 *>(b));
    group_commit();
    group_wait<0>();
    group_store(c, n, sums);
    group_store(reinterpret_cast<float *>(c), n, sums);
    bulk_store(map, 0, 0, sums, buffers, 0);
}
__global__ static void __launch_bounds__(256, 1)
    hopper(__half *c, const __half *b, const __grid_constant__ CUtensorMap map, int n) {
    extern __shared__ unsigned char shared[];
    __shared__ Barrier full;
    __half *tile_a = reinterpret_cast<__half *>(tiles_begin(shared)), *tile_b = tile_a + 64 * 64, *buffers = tile_b + 64 * 256;
    if (threadIdx.x == 0) barrier_init(&full, 2);
    copy_swizzled<64, 256>(tile_b, b, n);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_give_up_to<40>();
        if (threadIdx.x == 0) {
            barrier_expect(&full, 64 * 64 * 2);
            bulk_load<64, 64>(tile_a, &map, 0, 0, &full);
            barrier_arrive(&full);
        }
    } else {
        registers_take_up_to<232>();
        barrier_wait(&full, 0);
        multiply<32>(c, &map, tile_a, tile_b, buffers, n);
        multiply<64>(c, &map, tile_a, tile_b, buffers, n);
        multiply<96>(c, &map, tile_a, tile_b, buffers, n);
        multiply<128>(c, &map, tile_a, tile_b, buffers, n);
        bulk_store_end();
    }
}
#endif
// The host's half.
extern "C" int launch(__half *c, const __half *a, float *sums, int n, cudaStream_t stream) {
    any<<<1, 32, 0, stream>>>(sums, a, n);
#ifdef HOPPER
    CUtensorMap map;
    if (!tensor_map(&map, a, n, n, 64)) return 1;
    if (!tensor_map(&map, reinterpret_cast<const __nv_bfloat16 *>(a), n, n, 64)) return 1;
    hopper<<<1, 256, 1 << 17, stream>>>(c, a, map, n);
#endif
    return 0;
}
