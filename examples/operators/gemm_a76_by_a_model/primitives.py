# COMPUTE(x0 = c, x1 = a, x2 = b, x3 = depth, x4 = row_bytes, x5 = accumulate)
#
# Registers:
#   v0 .. v(MR-1)   A: vector r holds row r at four consecutive depths, step p uses lane p % 4
#   v16 .. v19      B: four vectors, which are 16 / NR steps of depth
#   v20 .. v31      sums, and then v4 .. v7 (MR = 4) or v8 .. v11 (MR = 8; d8 .. d11 are saved)
# One ld1 with post-index brings 64 bytes and steps the pointer, so that a group of four depths
# costs MR / 4 + NR / 4 loads and no other instruction beside the multiply-adds. These loads step
# pointers and therefore stand outside the blocks.
# Without accumulate the very first step multiplies (fmul) in place of clearing the sums.

VECTORS = NR // 4
if MR % 4 or NR % 4 or 4 % VECTORS or KU % 4:
    raise Exception("MR, NR, KU do not fit this kernel")
if MR > 8:
    raise Exception("too few registers for A")

A = list(range(MR))
B = [16, 17, 18, 19]
STEPS = 4 // VECTORS               # steps of depth in one load of B
pool = list(range(20, 32))
if MR == 4:
    pool += [4, 5, 6, 7]
else:
    pool += [8, 9, 10, 11]
if MR * VECTORS > len(pool):
    raise Exception("too few registers for the sums")
SUM = [[pool[r * VECTORS + j] for j in range(VECTORS)] for r in range(MR)]
used = [v for row in SUM for v in row]
SAVE = any(8 <= v <= 15 for v in used)


def many(registers):
    return "{" + ", ".join(f"v{v}.4s" for v in registers) + "}"


def load_a():
    for g in range(0, MR, 4):
        print(f"    ld1 {many(A[g:g + 4])}, [x1], #64")


def load_b():
    print(f"    ld1 {many(B)}, [x2], #64")


def compute(step, operation):
    print("# block: compute")
    base = (step % STEPS) * VECTORS
    for r in range(MR):
        for j in range(VECTORS):
            print(f"    {operation} v{SUM[r][j]}.4s, v{B[base + j]}.4s, v{A[r]}.s[{step % 4}]")
    print("# end")


print(".text\n.globl COMPUTE\n.type COMPUTE, %function\n.p2align 4\nCOMPUTE:")
if SAVE:
    print("    stp d8, d9, [sp, #-32]!")
    print("    stp d10, d11, [sp, #16]")
print("    cbnz x5, .Lcompute_accumulate")

# The first step of all, with fmul.
load_b()
load_a()
compute(0, "fmul")
print("    b .Lcompute_rest")

# The sums begin with what is in c.
print(".Lcompute_accumulate:")
print("    mov x6, x0")
for r in range(MR - 1):
    print(f"    ld1 {many(SUM[r])}, [x6], x4")
print("# block: load")
print(f"    ld1 {many(SUM[MR - 1])}, [x6]")
print("# end")

print(".p2align 4\n.Lcompute_loop:")
for step in range(KU):
    if step % STEPS == 0:
        load_b()
    if step % 4 == 0:
        load_a()
    compute(step, "fmla")
    if step == 0:
        print(".Lcompute_rest:")
print(f"    subs x3, x3, #{KU}")
print("    b.ne .Lcompute_loop")

for r in range(MR - 1):
    print(f"    st1 {many(SUM[r])}, [x0], x4")
print("# block: store")
print(f"    st1 {many(SUM[MR - 1])}, [x0]")
print("# end")
if SAVE:
    print("    ldp d10, d11, [sp, #16]")
    print("    ldp d8, d9, [sp], #32")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
