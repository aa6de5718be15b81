# COMPUTE(c = rdi, a = rsi, b = rdx, depth = rcx, row_bytes = r8, accumulate = r9)
# The depth is summed in chunks of CHUNK steps, each from zero in registers and then added to c: a long running sum
# loses too much in the roundings for the transformed products, whose sums are much larger than the output.
# Registers, for MR = 14 and NR = 32 (NV = 2 vectors of B):
#   zmm0 .. zmm27   the sums, row i and vector j in zmm(i * NV + j)
#   zmm28, zmm29    the vectors of B of this step
#   zmm30, zmm31    elements of A spread over a vector, in turn
#   rcx: steps after this chunk; r11: steps of this chunk; rax: counter of the unrolled loop, then the row of c;
#   r10: 3 * row_bytes; r9: whether c holds a sum already. All of them are the caller's to save.
VEC = 16
NV = NR // VEC
SUMS = MR * NV
if NR % VEC != 0:
    raise Exception("NR is not whole vectors")
if MR > 16:
    raise Exception("a panel of A has 16 floats for one step")
SPARE = 32 - SUMS - NV
if SPARE < 1:
    raise Exception("more registers needed than there are")
TURN = 2 if SPARE >= 2 else 1
CHUNK = 64    # steps
UNROLL = 4
A_STEP = 64
B_STEP = 4 * NR
A_AHEAD = 24  # steps
B_AHEAD = 8   # steps


def acc(i, j):
    return f"zmm{i * NV + j}"


def vb(j):
    return f"zmm{SUMS + j}"


def va(i):
    return f"zmm{SUMS + NV + i % TURN}"


def spread(i, u):
    print(f"    vbroadcastss {va(i)}, dword ptr [rsi+{A_STEP * u + 4 * i}]")


def step(u):
    print("# block: load")
    for j in range(NV):
        print(f"    vmovups {vb(j)}, [rdx+{B_STEP * u + 64 * j}]")
    for i in range(min(TURN, MR)):
        spread(i, u)
    print(f"    prefetcht0 [rsi+{A_STEP * (u + A_AHEAD)}]")
    for j in range(NV):
        print(f"    prefetcht0 [rdx+{B_STEP * (u + B_AHEAD) + 64 * j}]")
    print("# block: compute")
    for i in range(MR):
        for j in range(NV):
            print(f"    vfmadd231ps {acc(i, j)}, {va(i)}, {vb(j)}")
        if i + TURN < MR:
            spread(i + TURN, u)
    print("# end")


def row(q, j):
    off = f"+{64 * j}" if j else ""
    return ["[rax" + off + "]", "[rax+r8" + off + "]", "[rax+r8*2" + off + "]", "[rax+r10" + off + "]"][q]


def groups():
    return [range(i, min(i + 4, MR)) for i in range(0, MR, 4)]


print(".text\n.p2align 6\n.globl COMPUTE\n.type COMPUTE, @function\nCOMPUTE:")
print("    lea r10, [r8+r8*2]")
print("    mov rax, rdi")
# The tile of c is on its way while the sums are formed.
for n, g in enumerate(groups()):
    for i in g:
        for j in range(NV):
            print(f"    prefetcht0 {row(i % 4, j)}")
    if n + 1 < len(groups()):
        print("    lea rax, [rax+r8*4]")
print(".Lcompute_chunk:")
print(f"    mov r11d, {CHUNK}")
print("    cmp rcx, r11")
print("    cmovb r11, rcx")
print("    sub rcx, r11")
for r in range(SUMS):
    print(f"    vpxord zmm{r}, zmm{r}, zmm{r}")
print("    mov rax, r11")
print(f"    shr rax, {UNROLL.bit_length() - 1}")
print("    jz .Lcompute_rest")
print(".p2align 6")
print(".Lcompute_loop:")
for u in range(UNROLL):
    step(u)
print(f"    add rsi, {A_STEP * UNROLL}")
print(f"    add rdx, {B_STEP * UNROLL}")
print("    dec rax")
print("    jnz .Lcompute_loop")
print(".Lcompute_rest:")
print(f"    and r11, {UNROLL - 1}")
print("    jz .Lcompute_out")
print(".Lcompute_single:")
step(0)
print(f"    add rsi, {A_STEP}")
print(f"    add rdx, {B_STEP}")
print("    dec r11")
print("    jnz .Lcompute_single")
print(".Lcompute_out:")
print("    mov rax, rdi")
print("    test r9, r9")
print("    jz .Lcompute_fresh")
for n, g in enumerate(groups()):
    print("# block: store")
    for i in g:
        for j in range(NV):
            print(f"    vaddps {acc(i, j)}, {acc(i, j)}, {row(i % 4, j)}")
    for i in g:
        for j in range(NV):
            print(f"    vmovups {row(i % 4, j)}, {acc(i, j)}")
    print("# end")
    if n + 1 < len(groups()):
        print("    lea rax, [rax+r8*4]")
print("    test rcx, rcx")
print("    jnz .Lcompute_chunk")
print("    vzeroupper")
print("    ret")
print(".Lcompute_fresh:")
for n, g in enumerate(groups()):
    print("# block: store")
    for i in g:
        for j in range(NV):
            print(f"    vmovups {row(i % 4, j)}, {acc(i, j)}")
    print("# end")
    if n + 1 < len(groups()):
        print("    lea rax, [rax+r8*4]")
print("    mov r9d, 1")
print("    test rcx, rcx")
print("    jnz .Lcompute_chunk")
print("    vzeroupper")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
