# COMPUTE(c = rdi, a = rsi, b = rdx, depth = rcx, row_bytes = r8, accumulate = r9)
# The sums of the transformed products are much larger than the output, so their roundings count: a running sum of 64
# steps in single precision is too coarse. Therefore two levels, both in registers: CHUNK steps are summed for
# themselves, beginning with a product, and the sum of the chunk is then added to the total. That needs two registers
# for each sum, so the rows are done in parts (two parts of 7 rows for MR = 14, NR = 32), one after another, each over
# the whole depth. The additions run in units of their own, beside the multiply-adds.
# Registers, for R = 7 rows of a part and NV = 2 vectors of B:
#   zmm0 .. zmm13    the sums of this chunk, row i and vector j in zmm(i * NV + j)
#   zmm14 .. zmm27   the totals, in the same order
#   zmm28, zmm29     the vectors of B of this step
#   zmm30, zmm31     elements of A spread over a vector, in turn
#   r10, r11: where the loop is in a and b; rsi, rdx: the beginnings of a and b (in the last part rsi walks through the
#   panel of a behind this one, for prefetches); rdi: the first row of c of this part; rax: counter, or a row of c.
# None of them is one that is ours to save.
VEC = 16
NV = NR // VEC
if NR % VEC != 0 or NV < 1:
    raise Exception("NR is not whole vectors")
if MR < 1 or MR > 16:
    raise Exception("a panel of A has 16 floats for one step")
MOST = (32 - NV - 1) // (2 * NV)
if MOST < 1:
    raise Exception("more registers needed than there are")
PARTS = (MR + MOST - 1) // MOST
CHUNK = 8     # steps, a power of two
A_STEP = 64
B_STEP = 4 * NR
A_AHEAD = 16  # steps
B_AHEAD = 8   # steps
DELAY = 2     # rows between the last multiply-add of a sum and its addition to the total


def kernel_part(part, first, rows):
    last = part == PARTS - 1
    sums = rows * NV
    turn = min(2, 32 - 2 * sums - NV)
    if turn < 1:
        raise Exception("more registers needed than there are")
    name = f".Lcompute_{part}"

    def acc(i, j):
        return f"zmm{i * NV + j}"

    def tot(i, j):
        return f"zmm{sums + i * NV + j}"

    def vb(j):
        return f"zmm{2 * sums + j}"

    def va(i):
        return f"zmm{2 * sums + NV + i % turn}"

    def spread(i, u):
        print(f"    vbroadcastss {va(i)}, dword ptr [r10+{A_STEP * u + 4 * (first + i)}]")

    def add(i):
        for j in range(NV):
            print(f"    vaddps {tot(i, j)}, {tot(i, j)}, {acc(i, j)}")

    def step(u, fresh, end, ahead):
        print("# block: load")
        for j in range(NV):
            print(f"    vmovups {vb(j)}, [r11+{B_STEP * u + 64 * j}]")
        for i in range(min(turn, rows)):
            spread(i, u)
        if ahead:
            if last:
                print(f"    prefetcht0 [rsi+{A_STEP * u}]")
            else:
                print(f"    prefetcht0 [r10+{A_STEP * (u + A_AHEAD)}]")
            if part == 0:
                for j in range(NV):
                    print(f"    prefetcht0 [r11+{B_STEP * (u + B_AHEAD) + 64 * j}]")
        print("# block: compute")
        op = "vmulps" if fresh else "vfmadd231ps"
        for i in range(rows):
            for j in range(NV):
                print(f"    {op} {acc(i, j)}, {va(i)}, {vb(j)}")
            if i + turn < rows:
                spread(i + turn, u)
            if end and i >= DELAY:
                add(i - DELAY)
        if end:
            for i in range(max(rows - DELAY, 0), rows):
                add(i)
        print("# end")

    def row(base, q, j):
        off = f"+{64 * j}" if j else ""
        return f"[{base}" + ["", "+r8", "+r8*2"][q] + off + "]"

    def advance(base, n):
        if n >= 2:
            print(f"    lea {base}, [{base}+r8*2]")
        if n != 2:
            print(f"    add {base}, r8")

    groups = [list(range(i, min(i + 3, rows))) for i in range(0, rows, 3)]

    # The rows of c are on their way while the sums are formed.
    print("    mov rax, rdi")
    for n, g in enumerate(groups):
        for q in range(len(g)):
            for j in range(NV):
                print(f"    prefetcht0 {row('rax', q, j)}")
        if n + 1 < len(groups):
            advance("rax", len(g))
    print("    mov r10, rsi")
    print("    mov r11, rdx")
    if last:
        print("    mov rax, rcx")
        print("    shl rax, 6")
        print("    add rsi, rax")
    for r in range(sums):
        print(f"    vpxord zmm{sums + r}, zmm{sums + r}, zmm{sums + r}")
    print("    mov rax, rcx")
    print(f"    shr rax, {CHUNK.bit_length() - 1}")
    print(f"    jz {name}_rest")
    print(".p2align 6")
    print(f"{name}_loop:")
    for u in range(CHUNK):
        step(u, u == 0, u == CHUNK - 1, True)
    print(f"    add r10, {A_STEP * CHUNK}")
    print(f"    add r11, {B_STEP * CHUNK}")
    if last:
        print(f"    add rsi, {A_STEP * CHUNK}")
    print("    dec rax")
    print(f"    jnz {name}_loop")
    print(f"{name}_rest:")
    print("    mov rax, rcx")
    print(f"    and rax, {CHUNK - 1}")
    print(f"    jz {name}_out")
    for r in range(sums):
        print(f"    vpxord zmm{r}, zmm{r}, zmm{r}")
    print(f"{name}_single:")
    step(0, False, False, False)
    print(f"    add r10, {A_STEP}")
    print(f"    add r11, {B_STEP}")
    print("    dec rax")
    print(f"    jnz {name}_single")
    for i in range(rows):
        add(i)
    print(f"{name}_out:")
    print("    test r9, r9")
    print(f"    jz {name}_store")
    print("    mov rax, rdi")
    for n, g in enumerate(groups):
        print("# block: store")
        for q, i in enumerate(g):
            for j in range(NV):
                print(f"    vaddps {tot(i, j)}, {tot(i, j)}, {row('rax', q, j)}")
        print("# end")
        if n + 1 < len(groups):
            advance("rax", len(g))
    print(f"{name}_store:")
    for g in groups:
        print("# block: store")
        for q, i in enumerate(g):
            for j in range(NV):
                print(f"    vmovups {row('rdi', q, j)}, {tot(i, j)}")
        print("# end")
        advance("rdi", len(g))


print(".text\n.p2align 6\n.globl COMPUTE\n.type COMPUTE, @function\nCOMPUTE:")
begin = 0
for part in range(PARTS):
    rows = (MR - begin + PARTS - part - 1) // (PARTS - part)
    kernel_part(part, begin, rows)
    begin += rows
print("    vzeroupper")
print("    ret")
print(".size COMPUTE, .-COMPUTE")
