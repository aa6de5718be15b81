# COMPUTE(c: rdi, a: rsi, b: rdx, depth: rcx, row_bytes: r8)
# ymm0 up: the sums, row after row, NR / 8 of each. Then NR / 8 vectors of B. What is left, one at least: broadcasts of A,
# in turn. r9, r10: first row of each four rows of c. r11: 3 * row_bytes. a and b are stepped with a bias of 128 bytes,
# so that offsets stay short.
LANES = 8
NV = NR // LANES
SUMS = MR * NV
if NR % LANES != 0:
    raise ValueError("NR must be a multiple of 8")
if SUMS + NV + 1 > 16:
    raise ValueError("the tile needs more than 16 registers")
if MR > 8:
    raise ValueError("at most 8 rows")
B0 = SUMS
A0 = SUMS + NV
AN = min(16 - A0, MR)
BIAS = 128
AHEAD_A = 768  # bytes that the panel of A is prefetched ahead


def sum_of(i, v):
    return f"ymm{i * NV + v}"


def a_of(i):
    return f"ymm{A0 + i % AN}"


def at(base, offset):
    if offset == 0:
        return f"[{base}]"
    return f"[{base}{'+' if offset > 0 else '-'}{abs(offset)}]"


def row(i, offset):
    base = "r9" if i < 4 else "r10"
    index = ["", "+r8", "+r8*2", "+r11"][i % 4]
    return f"[{base}{index}{'+' + str(offset) if offset else ''}]"


def broadcast(u, i):
    print(f"    vbroadcastss {a_of(i)}, dword ptr {at('rsi', 4 * (u * MR + i) - BIAS)}")


print(".text\n.p2align 5\n.globl COMPUTE\n.type COMPUTE, @function\nCOMPUTE:")
print("    lea r11, [r8+r8*2]")
print("    mov r9, rdi")
print("    lea r10, [rdi+r8*4]")
print(f"    add rsi, {BIAS}\n    add rdx, {BIAS}")
for i in range(MR):
    print(f"    prefetcht0 {row(i, 0)}")
    print(f"    prefetcht0 {row(i, 4 * NR - 4)}")
for s in range(SUMS):
    print(f"    vxorps xmm{s}, xmm{s}, xmm{s}")
print("    test rcx, rcx\n    jle .Lcompute_store")
print(".p2align 5")
print(".Lcompute_loop:")
for line in range(0, 4 * MR * UNROLL, 64):
    print(f"    prefetcht0 {at('rsi', AHEAD_A + line - BIAS)}")
for u in range(UNROLL):
    print("# block: load")
    for v in range(NV):
        print(f"    vmovups ymm{B0 + v}, {at('rdx', 4 * (u * NR + v * LANES) - BIAS)}")
    for i in range(AN):
        broadcast(u, i)
    print("# block: compute")
    for i in range(MR):
        for v in range(NV):
            print(f"    vfmadd231ps {sum_of(i, v)}, {a_of(i)}, ymm{B0 + v}")
        if i + AN < MR:
            broadcast(u, i + AN)
    print("# end")
print(f"    add rsi, {4 * MR * UNROLL}")
print(f"    add rdx, {4 * NR * UNROLL}")
print(f"    sub rcx, {UNROLL}")
print("    jg .Lcompute_loop")
print(".Lcompute_store:")
print("# block: store")
for i in range(MR):
    for v in range(NV):
        print(f"    vaddps {sum_of(i, v)}, {sum_of(i, v)}, {row(i, 32 * v)}")
for i in range(MR):
    for v in range(NV):
        print(f"    vmovups {row(i, 32 * v)}, {sum_of(i, v)}")
print("# end")
print("    vzeroupper\n    ret\n.size COMPUTE, .-COMPUTE")
