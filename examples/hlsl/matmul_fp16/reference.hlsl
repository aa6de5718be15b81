// c = a * b, all n x n and row by row: one thread an element of c.
// region: macros
// region: device
[[vk::binding(0)]] RWStructuredBuffer<half> c;
[[vk::binding(1)]] StructuredBuffer<half> a;
[[vk::binding(2)]] StructuredBuffer<half> b;
struct Sizes {
    int n;
};
[[vk::push_constant]] ConstantBuffer<Sizes> sizes;

[numthreads({{BLOCK_X}}, {{BLOCK_Y}}, 1)]
void product(uint3 group : SV_GroupID, uint3 thread : SV_GroupThreadID) {
    int n = sizes.n;
    int row = (int)(group.y * {{BLOCK_Y}} + thread.y), column = (int)(group.x * {{BLOCK_X}} + thread.x);
    float sum = 0.0;
    for (int k = 0; k < n; ++k) sum += (float)a[row * n + k] * (float)b[k * n + column];
    c[row * n + column] = (half)sum;
}
// region: host
extern "C" int matmul(ws_buffer c, ws_buffer a, ws_buffer b, int32_t n, ws_device *device) {
    if (n % {{BLOCK_X}} != 0 || n % {{BLOCK_Y}} != 0) return WS_INVALID;
    ws_dispatch(device, "product", {n / {{BLOCK_X}}, n / {{BLOCK_Y}}}, {c, a, b}, {n});
    return 0;
}
