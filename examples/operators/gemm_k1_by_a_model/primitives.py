# COMPUTE(a0: c, a1: a, a2: b, a3: depth, a4: columns, a5: layout)
#
# Vectors, in groups of LMUL = NR / 8 registers (32 bits in each of 8 lanes):
#   groups 0 .. MR-1: the sums, one row of the tile each; group MR: one row of b.
# Scalars of a: ft0-ft11 and fa0-fa7, MR for each of STEPS steps of depth; none of them is ours to save.
# Integers: a1, t1, t2, ..: the rows of a.  a2: b.  a6: bytes of a row of b.  a7: bytes of a row of c.
#   a4: where a1 is at the end of the main loop.  a5: where a1 is after the last step.  t0: scratch.
LANES = 8
LMUL = NR // LANES
if NR % LANES != 0 or LMUL not in (1, 2, 4, 8):
    raise Exception("NR must be one register group")
if (MR + 1) * LMUL > 32:
    raise Exception("more vector registers than there are")
if UNROLL < 1 or UNROLL & (UNROLL - 1) != 0 or UNROLL > 256:
    raise Exception("UNROLL must be a power of two, at most 256")

sums = ["v%d" % (r * LMUL) for r in range(MR)]
row_of_b = "v%d" % (MR * LMUL)
rows_of_a = ["a1", "t1", "t2", "t3", "t4", "t5", "t6"]
if MR > len(rows_of_a):
    raise Exception("more pointers than there are registers")
rows_of_a = rows_of_a[:MR]
rows_of_c = (["a0", "t1", "t2", "t3", "t4", "t5", "t6"])[:MR]
scalars = ["ft%d" % i for i in range(12)] + ["fa%d" % i for i in range(8)]
STEPS = 1
while STEPS * 2 * MR <= len(scalars) and STEPS * 2 <= UNROLL:
    STEPS *= 2


def label(name):
    print(name + ":")


def op(text):
    print("    " + text)


def block(name):
    print("# block: " + name)


def end():
    print("# end")


def scalar(step, row):
    return scalars[(step % STEPS) * MR + row]


def steps(count):
    for s in range(count):
        block("load")
        op("vle32.v %s, (a2)" % row_of_b)
        if s % STEPS == 0:
            for ahead in range(s, min(s + STEPS, count)):
                for r in range(MR):
                    op("flw %s, %d(%s)" % (scalar(ahead, r), 4 * ahead, rows_of_a[r]))
        end()
        op("add a2, a2, a6")
        block("compute")
        for r in range(MR):
            op("vfmacc.vf %s, %s, %s" % (sums[r], scalar(s, r), row_of_b))
        end()


print(".text")
print(".p2align 4")
print(".globl COMPUTE")
print(".type COMPUTE, @function")
label("COMPUTE")
op("vsetvli zero, a4, e32, m%d, ta, ma" % LMUL)
op("ld t0, 0(a5)")
op("ld a6, 8(a5)")
op("ld a7, 16(a5)")
for r in range(1, MR):
    op("add %s, %s, t0" % (rows_of_a[r], rows_of_a[r - 1]))
op("ld t0, 24(a5)")
op("andi a4, a3, %d" % -UNROLL)
op("slli a4, a4, 2")
op("add a4, a1, a4")
op("slli a5, a3, 2")
op("add a5, a1, a5")
op("bnez t0, .Lcompute_accumulate")
for r in range(MR):
    op("vmv.v.i %s, 0" % sums[r])

label(".Lcompute_begin")
op("beq a1, a4, .Lcompute_rest")
label(".Lcompute_main")
steps(UNROLL)
for r in range(MR):
    op("addi %s, %s, %d" % (rows_of_a[r], rows_of_a[r], 4 * UNROLL))
op("bne a1, a4, .Lcompute_main")

label(".Lcompute_rest")
op("beq a1, a5, .Lcompute_store")
label(".Lcompute_single")
steps(1)
for r in range(MR):
    op("addi %s, %s, 4" % (rows_of_a[r], rows_of_a[r]))
op("bne a1, a5, .Lcompute_single")

label(".Lcompute_store")
for r in range(1, MR):
    op("add %s, %s, a7" % (rows_of_c[r], rows_of_c[r - 1]))
block("store")
for r in range(MR):
    op("vse32.v %s, (%s)" % (sums[r], rows_of_c[r]))
end()
op("ret")

label(".Lcompute_accumulate")
op("mv t0, a0")
for r in range(MR):
    op("vle32.v %s, (t0)" % sums[r])
    if r + 1 < MR:
        op("add t0, t0, a7")
op("j .Lcompute_begin")
print(".size COMPUTE, .-COMPUTE")
