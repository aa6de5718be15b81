# COMPUTE(x0 = c, x1 = a, x2 = b, x3 = depth, x4 = row_bytes, x5 = accumulate), a tile of 8 x 8.
#
# Registers:
#   v16 .. v31  the sums: row r has v(16 + 2r) (columns 0 .. 3) and v(17 + 2r) (columns 4 .. 7)
#   v0 .. v7    A: vr has four successive columns of row r, lane p % 4 of it goes with row p of B
#   v8 .. v11   B, rows 0 and 1 of a group of four;  v12 .. v15  B, rows 2 and 3
#   x6, x7      scratch
# The low halves of v8 .. v15 are the caller's: saved and restored.
#
# A group of four columns of A is done in four phases of 16 multiply-adds:
#   rows 0-3 with B 0,1 | rows 4-7 with B 0,1 | rows 0-3 with B 2,3 | rows 4-7 with B 2,3
# B 0,1 is free after the second and A 0-3 after the third, so those of the next group are loaded there;
# A 4-7 and B 2,3 are loaded at the begin of their own group, a phase or two before they are read.
# The first group of a tile that is not accumulated multiplies instead of adding to zeros, and enters the
# loop behind its first group. Nothing is read beyond the end: the last group of a pass loads nothing ahead.

LANES = 4
if MR != 8 or NR != 8:
    raise ValueError("the registers are laid out for a tile of 8 x 8")
if MR * (NR // LANES) + MR + LANES * (NR // LANES) > 32:
    raise ValueError("more registers than there are")
if KU % LANES != 0 or KU < 2 * LANES:
    raise ValueError("KU has to be a multiple of 4, and at least 8")
GROUPS = KU // LANES


def load_a_low():
    print("    ld1 {v0.4s, v1.4s, v2.4s, v3.4s}, [x1], #64")


def load_a_high():
    print("    ld1 {v4.4s, v5.4s, v6.4s, v7.4s}, [x1], #64")


def load_b_low():
    print("    ld1 {v8.4s, v9.4s, v10.4s, v11.4s}, [x2], #64")


def load_b_high():
    print("    ld1 {v12.4s, v13.4s, v14.4s, v15.4s}, [x2], #64")


def phase(first_row, first_step, multiply):
    print("# block: compute")
    for step in range(first_step, first_step + 2):
        operation = "fmul" if multiply and step == 0 else "fmla"
        for row in range(first_row, first_row + 4):
            for half in range(2):
                total = 16 + 2 * row + half
                vector = 8 + 2 * step + half
                print(f"    {operation} v{total}.4s, v{vector}.4s, v{row}.s[{step}]")
    print("# end")


def group(ahead, multiply):
    load_a_high()
    phase(0, 0, multiply)
    load_b_high()
    phase(4, 0, multiply)
    if ahead:
        load_b_low()
    phase(0, 2, False)
    if ahead:
        load_a_low()
    phase(4, 2, False)


print(".text")
print(".p2align 4")
print(".globl COMPUTE")
print(".type COMPUTE, %function")
print("COMPUTE:")
print("    sub sp, sp, #64")
print("    add x6, sp, #32")
print("    st1 {v8.1d, v9.1d, v10.1d, v11.1d}, [sp]")
print("    st1 {v12.1d, v13.1d, v14.1d, v15.1d}, [x6]")
print("    cbnz x5, .Lcompute_accumulate")

# The first group, into sums that hold nothing yet.
load_a_low()
load_b_low()
group(True, True)
print("    b .Lcompute_second")

# The sums begin with what the tile holds.
print(".Lcompute_accumulate:")
print("    mov x7, x0")
for row in range(MR - 1):
    print(f"    ld1 {{v{16 + 2 * row}.4s, v{17 + 2 * row}.4s}}, [x7], x4")
print("# block: load")
print("    ldp q30, q31, [x7]")
print("# end")

print(".p2align 4")
print(".Lcompute_loop:")
load_a_low()
load_b_low()
group(True, False)
print(".Lcompute_second:")
for index in range(1, GROUPS):
    group(index + 1 < GROUPS, False)
print(f"    sub x3, x3, #{KU}")
print("    cbnz x3, .Lcompute_loop")

for row in range(MR - 1):
    print(f"    st1 {{v{16 + 2 * row}.4s, v{17 + 2 * row}.4s}}, [x0], x4")
print("# block: store")
print("    stp q30, q31, [x0]")
print("# end")
print("    ld1 {v8.1d, v9.1d, v10.1d, v11.1d}, [sp], #32")
print("    ld1 {v12.1d, v13.1d, v14.1d, v15.1d}, [sp], #32")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
