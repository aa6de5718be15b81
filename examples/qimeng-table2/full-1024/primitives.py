# COMPUTE(rdi: c, rsi: a, rdx: b, rcx: depth, r8: row_bytes, r9: accumulate), AVX-512.
# zmm0 .. zmm(MR*V-1): the sums, row r and vector v in zmm(r*V+v), with V = NR/16.
# The next V registers: the vectors of B of one step. All that are left (at most MR): broadcasts of A.
# r10: three rows in bytes (and a row pointer for the prefetch), r11: counter of the unrolled loop.
# No register is used that would have to be saved.
UNROLL = 4      # steps of the depth in one round of the main loop
AHEAD = 512     # bytes by which the panel of A is prefetched

if NR % 16 != 0:
    raise Exception("NR must be a multiple of 16")
V = NR // 16
SUMS = MR * V
B0 = SUMS
A0 = SUMS + V
NA = min(MR, 32 - A0)
if NA < 1:
    raise Exception("the tile needs more than 32 vector registers")


def out(line):
    print("    " + line)


def step(u):
    # One step of the depth, in parts of as many rows as there are registers for A.
    for first in range(0, MR, NA):
        rows = range(first, min(MR, first + NA))
        print("# block: load")
        if first == 0:
            for v in range(V):
                out(f"vmovups zmm{B0 + v}, [rdx+{u * NR * 4 + 64 * v}]")
        for r in rows:
            out(f"vbroadcastss zmm{A0 + r - first}, dword ptr [rsi+{(u * MR + r) * 4}]")
        print("# block: compute")
        for r in rows:
            for v in range(V):
                out(f"vfmadd231ps zmm{r * V + v}, zmm{A0 + r - first}, zmm{B0 + v}")
        print("# end")


def store(add):
    # Rows in groups of four: rdi, rdi+r8, rdi+r8*2, rdi+r10.
    places = ["rdi", "rdi+r8", "rdi+r8*2", "rdi+r10"]
    for first in range(0, MR, 4):
        rows = range(first, min(MR, first + 4))
        print("# block: store")
        if add:
            for r in rows:
                for v in range(V):
                    n = r * V + v
                    out(f"vaddps zmm{n}, zmm{n}, [{places[r - first]}+{64 * v}]")
        for r in rows:
            for v in range(V):
                out(f"vmovups [{places[r - first]}+{64 * v}], zmm{r * V + v}")
        print("# end")
        if first + 4 < MR:
            out("lea rdi, [rdi+r8*4]")


print(".text")
print(".p2align 6")
print(".globl COMPUTE")
print(".type COMPUTE, @function")
print("COMPUTE:")

# Fetch the tile of c early: it is needed only behind the loop.
out("mov r10, rdi")
for r in range(MR):
    for v in range(V):
        out(f"prefetcht0 byte ptr [r10+{64 * v}]")
    if r + 1 < MR:
        out("add r10, r8")

for n in range(SUMS):
    out(f"vpxord zmm{n}, zmm{n}, zmm{n}")

out("mov r11, rcx")
out(f"shr r11, {UNROLL.bit_length() - 1}")
out("jz .Lcompute_rest")
print(".p2align 6")
print(".Lcompute_main:")
LINES = (UNROLL * MR * 4 + 63) // 64
for i in range(LINES):
    out(f"prefetcht0 byte ptr [rsi+{AHEAD + 64 * i}]")
for u in range(UNROLL):
    step(u)
out(f"add rsi, {UNROLL * MR * 4}")
out(f"add rdx, {UNROLL * NR * 4}")
out("dec r11")
out("jnz .Lcompute_main")

print(".Lcompute_rest:")
out(f"and rcx, {UNROLL - 1}")
out("jz .Lcompute_sums")
print(".Lcompute_one:")
step(0)
out(f"add rsi, {MR * 4}")
out(f"add rdx, {NR * 4}")
out("dec rcx")
out("jnz .Lcompute_one")

print(".Lcompute_sums:")
out("lea r10, [r8+r8*2]")
out("test r9, r9")
out("jz .Lcompute_write")
store(True)
out("vzeroupper")
out("ret")
print(".Lcompute_write:")
store(False)
out("vzeroupper")
out("ret")
print(".size COMPUTE, .-COMPUTE")
