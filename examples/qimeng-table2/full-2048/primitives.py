# COMPUTE(c: rdi, a: rsi, b: rdx, depth: rcx, row_bytes: r8, accumulate: r9)
#
# Registers, with NV = NR / 16 vectors in a row of the tile:
#   zmm0 up to zmm(MR * NV - 1): the sums, row r and vector j in zmm(r * NV + j)
#   the next NV:                 the vectors of B of one step
#   the next one to four:        elements of A, broadcast, in turn
#   rax, r10, r11:               counters and the row of C to prefetch; none has to be saved
if NR % 16 != 0:
    raise ValueError("NR must be a multiple of 16")
NV = NR // 16
SUMS = MR * NV
FIRST_B = SUMS
FIRST_A = SUMS + NV
if FIRST_A + 1 > 32:
    raise ValueError("MR x NR needs more than 32 vector registers")
TURNS = min(4, 32 - FIRST_A, MR)

UNROLL = 4                      # steps in one turn of the loop (a power of two)
SHIFT = 2                       # its logarithm
AHEAD_A = 1024                  # bytes that A is prefetched ahead
AHEAD_B = 10 * NR * 4           # bytes that B is prefetched ahead
LATE = MR + 6                   # the last turns, each of which prefetches a row of C
STEP_A = MR * 4
STEP_B = NR * 4


def sum_of(r, j):
    return f"zmm{r * NV + j}"


def b_of(j):
    return f"zmm{FIRST_B + j}"


def a_of(r):
    return f"zmm{FIRST_A + r % TURNS}"


def at(base, offset):
    return f"[{base}+{offset}]" if offset else f"[{base}]"


def broadcast(s, r):
    print(f"    vbroadcastss {a_of(r)}, dword ptr {at('rsi', s * STEP_A + 4 * r)}")


def step(s, prefetch):
    print("# block: load")
    for j in range(NV):
        print(f"    vmovups {b_of(j)}, {at('rdx', s * STEP_B + 64 * j)}")
    for r in range(TURNS):
        broadcast(s, r)
    if prefetch:
        if 64 * s < UNROLL * STEP_A:
            print(f"    prefetcht0 {at('rsi', AHEAD_A + 64 * s)}")
        for j in range(NV):
            print(f"    prefetcht0 {at('rdx', AHEAD_B + s * STEP_B + 64 * j)}")
    print("# block: compute")
    for r in range(MR):
        for j in range(NV):
            print(f"    vfmadd231ps {sum_of(r, j)}, {b_of(j)}, {a_of(r)}")
        if r + TURNS < MR:
            broadcast(s, r + TURNS)
    print("# end")


def turn():
    for s in range(UNROLL):
        step(s, True)
    print(f"    add rsi, {UNROLL * STEP_A}")
    print(f"    add rdx, {UNROLL * STEP_B}")


# Up to four rows of C in a block, addressed from rdi by r8 and rax = 3 * r8.
ROWS = ["rdi", "rdi+r8", "rdi+r8*2", "rdi+rax"]


def store(add):
    for first in range(0, MR, 4):
        rows = range(first, min(first + 4, MR))
        print("# block: store")
        if add:
            for r in rows:
                for j in range(NV):
                    print(f"    vaddps {sum_of(r, j)}, {sum_of(r, j)}, {at(ROWS[r - first], 64 * j)}")
        for r in rows:
            for j in range(NV):
                print(f"    vmovups {at(ROWS[r - first], 64 * j)}, {sum_of(r, j)}")
        print("# end")
        if first + 4 < MR:
            print("    lea rdi, [rdi+r8*4]")


print(".text")
print(".p2align 6")
print(".globl COMPUTE")
print(".type COMPUTE, @function")
print("COMPUTE:")
for i in range(SUMS):
    print(f"    vpxord zmm{i}, zmm{i}, zmm{i}")
print("    mov r10, rcx")
print(f"    shr r10, {SHIFT}")
print(f"    and rcx, {UNROLL - 1}")
print("    mov rax, r10")
print(f"    sub rax, {LATE}")
print("    jle .Lcompute_late")
print(f"    mov r10, {LATE}")

# All turns but the last ones.
print(".p2align 6")
print(".Lcompute_main:")
turn()
print("    dec rax")
print("    jnz .Lcompute_main")

# The last turns: each also prefetches a row of C, so that the tile is near when it is added.
print(".Lcompute_late:")
print("    test r10, r10")
print("    jz .Lcompute_rest")
print("    mov r11, rdi")
print(".p2align 6")
print(".Lcompute_late_loop:")
print("# block: load")
for j in range(NV):
    print(f"    prefetcht0 {at('r11', 64 * j)}")
print(f"    prefetcht0 {at('r11', 64 * NV - 4)}")
print("# end")
print("    add r11, r8")
turn()
print("    dec r10")
print("    jnz .Lcompute_late_loop")

# What is left of the depth, a step at a time.
print(".Lcompute_rest:")
print("    test rcx, rcx")
print("    jz .Lcompute_store")
print(".Lcompute_rest_loop:")
step(0, False)
print(f"    add rsi, {STEP_A}")
print(f"    add rdx, {STEP_B}")
print("    dec rcx")
print("    jnz .Lcompute_rest_loop")

print(".Lcompute_store:")
print("    lea rax, [r8+r8*2]")
print("    test r9, r9")
print("    jz .Lcompute_overwrite")
store(True)
print("    vzeroupper")
print("    ret")
print(".Lcompute_overwrite:")
store(False)
print("    vzeroupper")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
