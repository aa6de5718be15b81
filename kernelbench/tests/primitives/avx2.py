# MR x NR in ymm registers, NR a multiple of 8: accumulators from ymm0 up, then NR / 8 of B, then one of A.
vectors = NR // 8
b = MR * vectors
a = b + vectors
print(".text\n.globl COMPUTE\n.type COMPUTE, @function\nCOMPUTE:")
for r in range(b):
    print(f"    vxorps ymm{r}, ymm{r}, ymm{r}")
print("    test rcx, rcx\n    jz .Lws_done\n.Lws_loop:")
print("# block: load")
for v in range(vectors):
    print(f"    vmovups ymm{b + v}, [rdx+{32 * v}]")
print(f"    prefetcht0 [rdx+{4 * NR * PREFETCH}]")
print("# block: compute")
for i in range(MR):
    last = a + i % (16 - a)
    print(f"    vbroadcastss ymm{last}, dword ptr [rsi+{4 * i}]")
    for v in range(vectors):
        print(f"    vfmadd231ps ymm{i * vectors + v}, ymm{last}, ymm{b + v}")
print("# end")
print(f"    add rdx, {4 * NR}\n    add rsi, {4 * MR}\n    dec rcx\n    jnz .Lws_loop\n.Lws_done:")
for i in range(MR):
    print(f"# block: store {i}")
    for v in range(vectors):
        print(f"    vaddps ymm{i * vectors + v}, ymm{i * vectors + v}, [rdi+{32 * v}]")
        print(f"    vmovups [rdi+{32 * v}], ymm{i * vectors + v}")
    print("# end\n    add rdi, r8")
print("    vzeroupper\n    ret\n.size COMPUTE, .-COMPUTE")
