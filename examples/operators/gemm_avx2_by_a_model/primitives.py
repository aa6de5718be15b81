# extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes);
#     rdi: c    rsi: a    rdx: b    rcx: depth    r8: row_bytes
#     r9: row 3 of the tile of c
# With V = NR / 8 vectors to a row:
#     ymm0 up to ymm(MR*V-1): the sums, row i and vector v in ymm(i*V+v)
#     the next V registers:   one step of B
#     the rest, at most MR:   elements of A, broadcast, used in turn
# MR=6, NR=16: sums 0-11, B 12-13, A 14-15.
# MR=4, NR=24: sums 0-11, B 12-14, A 15.
# MR=4, NR=16: sums 0-7,  B 8-9,   A 10-13.
# Only registers that a callee may change are used; nothing needs saving.

if NR % 8 != 0:
    raise ValueError("NR must be a multiple of 8")
V = NR // 8
SUMS = MR * V
if SUMS + V + 1 > 16:
    raise ValueError("MR x NR needs more than 16 vector registers")
if MR > 6:
    raise ValueError("rows are addressed from two pointers, at most 6")

BIAS = 128          # pointers stand in the middle, so that displacements are short
AHEAD = 512         # bytes that the panel of A is fetched ahead
STEP_A = 4 * MR     # bytes of one step
STEP_B = 4 * NR

FREE = 16 - SUMS - V
NA = min(FREE, MR)


def acc(i, v):
    return f"ymm{i * V + v}"


def breg(v):
    return f"ymm{SUMS + v}"


def areg(i):
    return f"ymm{SUMS + V + i % NA}"


def at(base, offset):
    return f"[{base}{offset:+d}]" if offset else f"[{base}]"


def row(i, v):
    base = "rdi" if i < 3 else "r9"
    base += ("", "+r8", "+r8*2")[i % 3]
    return at(base, 32 * v)


def broadcast(u, i):
    print(f"    vbroadcastss {areg(i)}, dword ptr {at('rsi', u * STEP_A + 4 * i - BIAS)}")


print(".text")
print(".globl COMPUTE")
print(".type COMPUTE, @function")
print(".p2align 6")
print("COMPUTE:")
print("    test rcx, rcx")
print("    jle .Lcompute_done")
print(f"    add rsi, {BIAS}")
print(f"    add rdx, {BIAS}")
print("    lea r9, [r8+r8*2]")
print("    add r9, rdi")
for s in range(SUMS):
    print(f"    vxorps ymm{s}, ymm{s}, ymm{s}")
print(".p2align 6")
print(".Lcompute_loop:")

# The lines of A that lie AHEAD of this turn (the next panel follows this one).
for line in range(0, UNROLL * STEP_A, 64):
    print(f"    prefetcht0 {at('rsi', AHEAD + line - BIAS)}")

for u in range(UNROLL):
    print("# block: load")
    for v in range(V):
        print(f"    vmovups {breg(v)}, {at('rdx', u * STEP_B + 32 * v - BIAS)}")
    for i in range(NA):
        broadcast(u, i)
    print("# block: compute")
    for i in range(MR):
        for v in range(V):
            print(f"    vfmadd231ps {acc(i, v)}, {areg(i)}, {breg(v)}")
        # The register of A is free again: the row that uses it next is loaded
        # while the multiply-adds between run.
        if i + NA < MR:
            broadcast(u, i + NA)
    print("# end")

print(f"    add rsi, {UNROLL * STEP_A}")
print(f"    add rdx, {UNROLL * STEP_B}")
print(f"    sub rcx, {UNROLL}")
print("    jg .Lcompute_loop")

print("# block: store")
for i in range(MR):
    for v in range(V):
        print(f"    vaddps {acc(i, v)}, {acc(i, v)}, {row(i, v)}")
for i in range(MR):
    for v in range(V):
        print(f"    vmovups {row(i, v)}, {acc(i, v)}")
print("# end")
print(".Lcompute_done:")
print("    vzeroupper")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
