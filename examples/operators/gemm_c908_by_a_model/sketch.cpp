#include <cstdint>
#include <cstdlib>
#include <cstring>

// One panel of MR rows and `columns` columns over the whole depth:
//
//   for r in 0 .. MR-1, for j in 0 .. columns-1:
//     c[r * pitch + j] = sum over p in 0 .. depth-1 of a[r * depth + p] * b[p * pitch + j]
//
// with pitch = row_bytes / 4, the same for b and c. The rows of a are dense: their
// pitch is `depth` floats. c is OVERWRITTEN, never read before the kernel wrote it.
// depth >= 1, columns >= 1, both of any size; nothing outside of the panels is touched.
//
// Meant to be done so (RVV 1.0, vlen 128, e32, m8, so that one group is NR floats):
//   - the depth in blocks of KU; the MR * KU scalars of a for a block are loaded once
//     into floating-point registers (saved first where the callee has to) and kept
//     while the columns are walked in strips of NR;
//   - per strip: MR accumulators (v8, v16, v24), loaded from c, or set to zero in the
//     first block of the depth; KU times one load of NR floats of b (v0) and MR vfmacc.vf;
//     then the accumulators are stored to c;
//   - the rest of the depth in smaller blocks, the rest of the columns by vsetvli.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth,
                        int64_t columns, int64_t row_bytes);

// MR accumulators and one row of b, each of NR / 4 registers, out of 32.
static_assert(({{MR}} + 1) * ({{NR}} / 4) <= 32, "vector registers");
// The scalars of a that are held while a strip of b passes.
static_assert({{MR}} * {{KU}} <= 30, "floating-point registers");
static_assert({{BN}} % {{NR}} == 0, "whole strips");

// All columns of one panel of MR rows, block by block, is the inner order for a narrow
// matrix; here the block of columns is outermost, so that k x BN of b stays in the second
// level, and KU x BN of b with MR x BN of c stay in the first level.
extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t MR = {{MR}};
    constexpr int64_t BN = {{BN}};
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        std::memset(c, 0, static_cast<size_t>(m) * static_cast<size_t>(n) * sizeof(float));
        return;
    }
    const int64_t row_bytes = n * static_cast<int64_t>(sizeof(float));

    if (m < MR) {
        // Fewer rows than a panel: zeros behind the last row of a, and a whole panel of c.
        float *local = static_cast<float *>(
            std::calloc(static_cast<size_t>(MR) * static_cast<size_t>(k + n), sizeof(float)));
        if (!local) std::abort();
        float *panel_a = local;
        float *panel_c = local + MR * k;
        std::memcpy(panel_a, a, static_cast<size_t>(m) * static_cast<size_t>(k) * sizeof(float));
        for (int64_t j = 0; j < n; j += BN) {
            const int64_t columns = n - j < BN ? n - j : BN;
            COMPUTE(panel_c + j, panel_a, b + j, k, columns, row_bytes);
        }
        std::memcpy(c, panel_c, static_cast<size_t>(m) * static_cast<size_t>(n) * sizeof(float));
        std::free(local);
        return;
    }

    for (int64_t j = 0; j < n; j += BN) {
        const int64_t columns = n - j < BN ? n - j : BN;
        int64_t i = 0;
        for (; i + MR <= m; i += MR) {
            COMPUTE(c + i * n + j, a + i * k, b + j, k, columns, row_bytes);
        }
        if (i < m) {
            // The last panel overlaps the one before it: c is overwritten with the same values.
            i = m - MR;
            COMPUTE(c + i * n + j, a + i * k, b + j, k, columns, row_bytes);
        }
    }
}
