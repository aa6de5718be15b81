// Moves registers from one warp group to others, all threads of the warp group together: a multiple of 8 from 24 to 240 for each
// thread. The kernel is launched with the same number for all (__launch_bounds__), and those that take wait for those that give.
template <int registers> __device__ __forceinline__ void registers_give_up_to() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> __device__ __forceinline__ void registers_take_up_to() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
