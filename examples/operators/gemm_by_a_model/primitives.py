# COMPUTE(c=rdi, a=rsi, b=rdx, depth=rcx, row_bytes=r8, accumulate=r9)
# Registers:
#   zmm0 .. zmm[MR*NV-1]   the sums, row by row, NV vectors a row
#   then SETS * NV         the vectors of B (two sets where they fit, used in turn)
#   then the rest (up to MR)  elements of A, broadcast, used in turn
#   r10: the next panel of A (prefetched), r11: rows of c for prefetching, rax: 3 * row_bytes
NV = NR // 16
if NR % 16 != 0:
    raise Exception("NR is not a multiple of a vector")
if KU % 2 != 0:
    raise Exception("KU is odd")
SUMS = MR * NV
REST = 32 - SUMS
if REST < NV + 1:
    raise Exception("more registers needed than there are")
SETS = 2 if REST >= 2 * NV + 2 else 1
B0 = SUMS
A0 = SUMS + SETS * NV
T = min(32 - A0, MR)

def acc(r, v):
    return f"zmm{r * NV + v}"

def breg(p, v):
    return f"zmm{B0 + (p % SETS) * NV + v}"

def areg(r):
    return f"zmm{A0 + r % T}"

def load_b(p):
    return [f"    vmovups {breg(p, v)}, [rdx+{p * NR * 4 + 64 * v}]" for v in range(NV)]

def load_a(r, p):
    return f"    vbroadcastss {areg(r)}, dword ptr [rsi+{r * BK * 4 + 4 * p}]"

def row(base, i):
    return [f"{base}", f"{base}+r8", f"{base}+2*r8", f"{base}+rax"][i]

out = []
out.append(".text")
out.append(".globl COMPUTE")
out.append(".type COMPUTE, @function")
out.append(".p2align 6")
out.append("COMPUTE:")
out.append("    lea rax, [r8+2*r8]")
out.append(f"    lea r10, [rsi+{MR * BK * 4}]")
out.append("    mov r11, rdi")

# The first vectors of B, where there are two sets.
if SETS == 2:
    out.append("# block: load")
    out += load_b(0)
    out.append("# end")

for i in range(SUMS):
    out.append(f"    vpxord zmm{i}, zmm{i}, zmm{i}")

# Lines of c, which are needed at the end.
for r in range(MR):
    for v in range(NV):
        out.append(f"    prefetcht0 [{row('r11', r % 4)}+{64 * v}]")
    out.append(f"    prefetcht0 [{row('r11', r % 4)}+{NR * 4 - 4}]")
    if r % 4 == 3 and r + 1 < MR:
        out.append("    lea r11, [r11+4*r8]")

# Lines of the next panel of A to prefetch in one round of the loop.
STRIDE = MR * KU * 4
LINES = (STRIDE + 63) // 64
ahead = [[] for _ in range(KU)]
for i in range(LINES):
    ahead[(i * KU) // LINES].append(f"    prefetcht0 [r10+{64 * i}]")

out.append("    .p2align 6")
out.append(".Lcompute_loop:")
for p in range(KU):
    out.append("# block: load")
    if SETS == 1:
        out += load_b(p)
    for r in range(min(T, MR)):
        out.append(load_a(r, p))
    out.append("# block: compute")
    following = load_b(p + 1) if SETS == 2 else []
    for r in range(MR):
        for v in range(NV):
            out.append(f"    vfmadd231ps {acc(r, v)}, {areg(r)}, {breg(p, v)}")
        if r + T < MR:
            out.append(load_a(r + T, p))
        if following:
            out.append(following.pop(0))
    out += following
    out.append("# end")
    out += ahead[p]
out.append(f"    add rsi, {4 * KU}")
out.append(f"    add rdx, {4 * NR * KU}")
out.append(f"    add r10, {STRIDE}")
out.append(f"    sub rcx, {KU}")
out.append("    jnz .Lcompute_loop")

out.append("    test r9, r9")
out.append("    jz .Lcompute_set")

# c += sums
for g in range(0, MR, 4):
    rows = range(g, min(g + 4, MR))
    out.append("# block: store")
    for r in rows:
        for v in range(NV):
            out.append(f"    vaddps {acc(r, v)}, {acc(r, v)}, [{row('rdi', r % 4)}+{64 * v}]")
    for r in rows:
        for v in range(NV):
            out.append(f"    vmovups [{row('rdi', r % 4)}+{64 * v}], {acc(r, v)}")
    out.append("# end")
    if g + 4 < MR:
        out.append("    lea rdi, [rdi+4*r8]")
out.append("    vzeroupper")
out.append("    ret")

# c = sums
out.append(".Lcompute_set:")
for g in range(0, MR, 4):
    out.append("# block: store")
    for r in range(g, min(g + 4, MR)):
        for v in range(NV):
            out.append(f"    vmovups [{row('rdi', r % 4)}+{64 * v}], {acc(r, v)}")
    out.append("# end")
    if g + 4 < MR:
        out.append("    lea rdi, [rdi+4*r8]")
out.append("    vzeroupper")
out.append("    ret")
out.append(".size COMPUTE, .-COMPUTE")
print("\n".join(out))
