# COMPUTE(c, a, b, depth, columns, row_bytes) for RISC-V with RVV 1.0.
#
# Registers
#   a0: c. a1, a6, a7: the rows of a, at the next block of the depth. a2: b, at the next
#   block of the depth. a3: what is left of the depth, less KU. a4: columns behind the last
#   whole strip. a5: bytes between two rows of b and of c.
#   s0: bytes of the whole strips. s1: bytes of KU rows of b. t0: NR.
#   t1, t2, t3: the rows of c, at the strip. t4: b at the strip, first row of the block.
#   t5: b at the strip, further rows; also a scratch register. t6: end of the whole strips.
#   v0 group: one row of a strip of b. The groups behind it: the sums, one per row.
#   MR * KU floating-point registers: the scalars of a of one block of the depth.

LMUL = NR // 4
if NR % 4 != 0 or LMUL not in (1, 2, 4, 8):
    raise ValueError("NR does not fill a group of vector registers")
if (MR + 1) * LMUL > 32:
    raise ValueError("too few vector registers")
if MR > 3:
    raise ValueError("too few integer registers for the rows")
if MR * KU > 32:
    raise ValueError("too few floating-point registers")
if KU < 2 or BN % NR != 0:
    raise ValueError("KU or BN does not suit")
if (BN - NR) * 4 > 2047:
    raise ValueError("BN is too large for an immediate")

CALLER = ["ft%d" % i for i in range(12)] + ["fa%d" % i for i in range(8)]
CALLEE = ["fs%d" % i for i in range(12)]
SCALARS = (CALLER + CALLEE)[:MR * KU]
SAVED = [name for name in SCALARS if name in CALLEE]
A_ROWS = ["a1", "a6", "a7"][:MR]
C_ROWS = ["t1", "t2", "t3"][:MR]
SUMS = ["v%d" % ((r + 1) * LMUL) for r in range(MR)]
STEP = NR * 4
STRIPS = BN // NR
FRAME = (16 + 8 * len(SAVED) + 15) // 16 * 16
TYPE = "e32, m%d, ta, ma" % LMUL

lines = []


def op(text):
    lines.append("    " + text)


def label(name):
    lines.append(name + ":")


def block(kind):
    lines.append("# block: " + kind)


def end():
    lines.append("# end")


def scalar(r, p):
    return SCALARS[r * KU + p]


def load_scalars(depth):
    block("load")
    for p in range(depth):
        for r in range(MR):
            op("flw %s, %d(%s)" % (scalar(r, p), 4 * p, A_ROWS[r]))
    end()
    for r in range(MR):
        op("addi %s, %s, %d" % (A_ROWS[r], A_ROWS[r], 4 * depth))


def products(depth, first, load_sums):
    """One strip: sums += a block * b strip. With `first` the sums begin here."""
    for p in range(depth):
        if p > 0:
            op("add t5, %s, a5" % ("t4" if p == 1 else "t5"))
        block("load")
        op("vle32.v v0, (%s)" % ("t4" if p == 0 else "t5"))
        if p == 0 and load_sums:
            for r in range(MR):
                op("vle32.v %s, (%s)" % (SUMS[r], C_ROWS[r]))
        block("compute")
        for r in range(MR):
            if first and p == 0:
                op("vfmul.vf %s, v0, %s" % (SUMS[r], scalar(r, p)))
            else:
                op("vfmacc.vf %s, %s, v0" % (SUMS[r], scalar(r, p)))
        end()


def store_sums():
    block("store")
    for r in range(MR):
        op("vse32.v %s, (%s)" % (SUMS[r], C_ROWS[r]))
    end()


def rows_of_c():
    op("mv %s, a0" % C_ROWS[0])
    for r in range(1, MR):
        op("add %s, %s, a5" % (C_ROWS[r], C_ROWS[r - 1]))


def move_strip(by):
    for name in C_ROWS:
        op("addi %s, %s, %d" % (name, name, by))
    op("addi t4, t4, %d" % by)


def general(depth, first, name):
    """All columns, any number of them, for one block of the depth."""
    load_scalars(depth)
    rows_of_c()
    op("mv t4, a2")
    op("add t6, t4, s0")
    op("beq t4, t6, .L%s_tail" % name)
    label(".L%s_strip" % name)
    products(depth, first, not first)
    store_sums()
    move_strip(STEP)
    op("bne t4, t6, .L%s_strip" % name)
    label(".L%s_tail" % name)
    op("beqz a4, .L%s_end" % name)
    op("vsetvli zero, a4, " + TYPE)
    products(depth, first, not first)
    store_sums()
    op("vsetvli zero, t0, " + TYPE)
    label(".L%s_end" % name)


def walk(first, by):
    """BN columns, unrolled, to the right or back to the left. The sums of the strip where
    the walk turns stay in registers from one block of the depth to the next."""
    load_scalars(KU)
    for s in range(STRIPS):
        products(KU, first, not first and s > 0)
        if s + 1 < STRIPS:
            store_sums()
            move_strip(by)
    op("add t4, t5, a5")
    op("addi a3, a3, %d" % -KU)


def rest(first, name):
    """1 to KU - 1 rows of b, their number in a3."""
    for depth in range(1, KU):
        op("li t5, %d" % depth)
        op("bne a3, t5, .L%s_not%d" % (name, depth))
        general(depth, first, "%s%d" % (name, depth))
        op("j .Ldone")
        label(".L%s_not%d" % (name, depth))
    op("j .Ldone")


lines.append(".text")
lines.append(".p2align 2")
lines.append(".globl COMPUTE")
lines.append(".type COMPUTE, @function")
label("COMPUTE")
op("addi sp, sp, %d" % -FRAME)
op("sd s0, 0(sp)")
op("sd s1, 8(sp)")
for i, name in enumerate(SAVED):
    op("fsd %s, %d(sp)" % (name, 16 + 8 * i))
op("slli t5, a3, 2")
for r in range(1, MR):
    op("add %s, %s, t5" % (A_ROWS[r], A_ROWS[r - 1]))
op("li t0, %d" % NR)
op("li s1, %d" % KU)
op("mul s1, s1, a5")
op("mv t6, a4")
op("andi t5, a4, %d" % -NR)
op("slli s0, t5, 2")
op("andi a4, a4, %d" % (NR - 1))
op("vsetvli zero, t0, " + TYPE)
op("addi a3, a3, %d" % -KU)
op("bgez a3, .Ldeep")
op("addi a3, a3, %d" % KU)
op("j .Lshort")
label(".Ldeep")
op("li t5, %d" % BN)
op("beq t6, t5, .Lwalk")
op("j .Lgeneral")

# Whole blocks of columns: to the right, to the left, and so on.
label(".Lwalk")
rows_of_c()
op("mv t4, a2")
walk(True, STEP)
label(".Lwalk_right_done")
op("bgez a3, .Lwalk_left")
op("addi a2, t4, %d" % -((BN - NR) * 4))
op("j .Lwalk_end")
label(".Lwalk_left")
walk(False, -STEP)
op("bgez a3, .Lwalk_right")
op("mv a2, t4")
op("j .Lwalk_end")
label(".Lwalk_right")
walk(False, STEP)
op("j .Lwalk_right_done")
label(".Lwalk_end")
store_sums()
op("j .Lrest")

# Any number of columns.
label(".Lgeneral")
general(KU, True, "begin")
op("add a2, a2, s1")
op("addi a3, a3, %d" % -KU)
op("bltz a3, .Lgeneral_done")
label(".Lgeneral_more")
general(KU, False, "more")
op("add a2, a2, s1")
op("addi a3, a3, %d" % -KU)
op("bgez a3, .Lgeneral_more")
label(".Lgeneral_done")

# The rest of the depth.
label(".Lrest")
op("addi a3, a3, %d" % KU)
op("bnez a3, .Lrest_some")
op("j .Ldone")
label(".Lrest_some")
rest(False, "rest")

# A depth of less than KU.
label(".Lshort")
rest(True, "short")

label(".Ldone")
for i, name in enumerate(SAVED):
    op("fld %s, %d(sp)" % (name, 16 + 8 * i))
op("ld s0, 0(sp)")
op("ld s1, 8(sp)")
op("addi sp, sp, %d" % FRAME)
op("ret")
lines.append(".size COMPUTE, .-COMPUTE")
print("\n".join(lines))
