// A barrier in fast memory that counts arrivals and copied bytes. Its phases are numbered from 0, each over when all has arrived.
using Barrier = uint64_t;
// Makes a barrier of so many arrivals a phase: one thread, before the barrier of the block that all threads meet at.
__device__ __forceinline__ void barrier_init(Barrier *barrier, unsigned arrivals) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One arrival.
__device__ __forceinline__ void barrier_arrive(Barrier *barrier) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// One arrival, and so many bytes that copies bring in this phase.
__device__ __forceinline__ void barrier_expect(Barrier *barrier, unsigned bytes) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
// Waits until the phase of this parity (its number modulo 2) is over. With 1, a barrier that was just made does not wait.
__device__ __forceinline__ void barrier_wait(Barrier *barrier, unsigned parity) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    unsigned over;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(at), "r"(parity) : "memory");
    while (!over);
}
