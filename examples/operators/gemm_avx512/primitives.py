# MR x NR in zmm registers, NR a multiple of 16: accumulators from zmm0 up, then NR / 16 of B; A is broadcast from memory.
vectors = NR // 16
b = MR * vectors
print(".text\n.globl COMPUTE\n.type COMPUTE, @function\nCOMPUTE:")
for r in range(b):
    print(f"    vpxord zmm{r}, zmm{r}, zmm{r}")
print("    test rcx, rcx\n    jz .Lws_done\n.Lws_loop:\n# block: load")
for v in range(vectors):
    print(f"    vmovups zmm{b + v}, [rdx+{64 * v}]")
print(f"    prefetcht0 [rdx+{4 * NR * PREFETCH}]\n# block: compute")
for i in range(MR):
    for v in range(vectors):
        print(f"    vfmadd231ps zmm{i * vectors + v}, zmm{b + v}, dword ptr [rsi+{4 * i}]{{1to16}}")
print("# end")
print(f"    add rdx, {4 * NR}\n    add rsi, {4 * MR}\n    dec rcx\n    jnz .Lws_loop\n.Lws_done:")
for i in range(MR):
    print(f"# block: store {i}")
    for v in range(vectors):
        print(f"    vaddps zmm{i * vectors + v}, zmm{i * vectors + v}, [rdi+{64 * v}]")
        print(f"    vmovups [rdi+{64 * v}], zmm{i * vectors + v}")
    print("# end\n    add rdi, r8")
print("    vzeroupper\n    ret\n.size COMPUTE, .-COMPUTE")
