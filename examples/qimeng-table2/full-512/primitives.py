# COMPUTE(rdi: c, rsi: a, rdx: b, rcx: depth, r8: row_bytes, r9: accumulate)
# AVX-512. With NV = NR / 16 vectors in a row of B:
#   zmm0 .. zmm(MR*NV-1): the sums, row i and vector j in zmm(i*NV+j)
#   then NV registers for the vectors of B, twice NV (steps take turns) where there is room
#   the rest, at most MR: values of A, each broadcast to a whole vector, taken in turn
# rax: count of unrolled steps, then 3 * row_bytes. rcx: steps that are left. r10: rows of c to prefetch.
UNROLL_STEPS = 4
AHEAD = 512  # bytes of the panel of A to prefetch ahead

if NR % 16 != 0 or MR % 4 != 0:
    raise Exception("NR must be a multiple of 16 and MR a multiple of 4")
NV = NR // 16
SUMS = MR * NV
if SUMS + NV + 1 > 32:
    raise Exception("the tile needs more than 32 vector registers")
TURNS = 2 if SUMS + 2 * NV + MR <= 32 else 1
FIRST_B = SUMS
FIRST_A = SUMS + TURNS * NV
COUNT_A = min(MR, 32 - FIRST_A)
if COUNT_A < 1:
    raise Exception("no register is left for A")


def step(u):
    first = FIRST_B + (u % TURNS) * NV
    a_at = u * MR * 4
    b_at = u * NR * 4
    print("# block: load")
    for j in range(NV):
        print(f"    vmovups zmm{first + j}, [rdx+{b_at + 64 * j}]")
    for i in range(COUNT_A):
        print(f"    vbroadcastss zmm{FIRST_A + i}, dword ptr [rsi+{a_at + 4 * i}]")
    print("# block: compute")
    for i in range(MR):
        reg = FIRST_A + i % COUNT_A
        for j in range(NV):
            print(f"    vfmadd231ps zmm{i * NV + j}, zmm{reg}, zmm{first + j}")
        if i + COUNT_A < MR:
            print(f"    vbroadcastss zmm{reg}, dword ptr [rsi+{a_at + 4 * (i + COUNT_A)}]")
    print("# end")


def store(add):
    rows = ["rdi", "rdi+r8", "rdi+r8*2", "rdi+rax"]
    for i in range(0, MR, 4):
        print("# block: store")
        if add:
            for r in range(4):
                for j in range(NV):
                    reg = (i + r) * NV + j
                    print(f"    vaddps zmm{reg}, zmm{reg}, [{rows[r]}+{64 * j}]")
        for r in range(4):
            for j in range(NV):
                reg = (i + r) * NV + j
                print(f"    vmovups [{rows[r]}+{64 * j}], zmm{reg}")
        print("# end")
        if i + 4 < MR:
            print("    lea rdi, [rdi+r8*4]")


print(".text")
print(".p2align 6")
print(".globl COMPUTE")
print(".type COMPUTE, @function")
print("COMPUTE:")
print("    mov r10, rdi")
for i in range(MR):
    for j in range(NV):
        print(f"    prefetcht0 [r10+{64 * j}]")
    if i + 1 < MR:
        print("    add r10, r8")
for s in range(SUMS):
    print(f"    vpxord zmm{s}, zmm{s}, zmm{s}")
print("    mov rax, rcx")
print(f"    shr rax, {UNROLL_STEPS.bit_length() - 1}")
print("    jz .Lcompute_rest")
print(".p2align 6")
print(".Lcompute_loop:")
for u in range(UNROLL_STEPS):
    step(u)
for line in range((UNROLL_STEPS * MR * 4 + 63) // 64):
    print(f"    prefetcht0 [rsi+{AHEAD + 64 * line}]")
print(f"    add rsi, {UNROLL_STEPS * MR * 4}")
print(f"    add rdx, {UNROLL_STEPS * NR * 4}")
print("    dec rax")
print("    jnz .Lcompute_loop")
print(".Lcompute_rest:")
print(f"    and rcx, {UNROLL_STEPS - 1}")
print("    jz .Lcompute_out")
print(".Lcompute_single:")
step(0)
print(f"    add rsi, {MR * 4}")
print(f"    add rdx, {NR * 4}")
print("    dec rcx")
print("    jnz .Lcompute_single")
print(".Lcompute_out:")
print("    lea rax, [r8+r8*2]")
print("    test r9, r9")
print("    jz .Lcompute_set")
store(True)
print("    vzeroupper")
print("    ret")
print(".Lcompute_set:")
store(False)
print("    vzeroupper")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
