// The array between the two, which SGLang has from torch's allocator: kept, and taken anew where more is needed, which may be
// while a graph is captured. Those that were kept before stay: a graph that was captured writes into them.
static void *between(size_t bytes, int device) {
    static void *held[64];
    static size_t room[64];
    if (room[device] < bytes) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        cudaThreadExchangeStreamCaptureMode(&mode);
        room[device] = cudaMalloc(&held[device], bytes) == cudaSuccess ? bytes : 0;
        cudaThreadExchangeStreamCaptureMode(&mode);
    }
    return held[device];
}
