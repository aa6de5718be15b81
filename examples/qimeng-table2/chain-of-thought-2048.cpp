#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

inline int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }
inline int64_t ceil_to(int64_t x, int64_t q) { return (x + q - 1) / q * q; }

// Packs columns [from, kc) of up to MR rows, element by element.
template <int MR>
inline void pack_rows_plain(float* dst, const float* a, int64_t lda, int64_t rows,
                            int64_t from, int64_t kc) {
    for (int64_t p = from; p < kc; ++p) {
        for (int64_t i = 0; i < rows; ++i) dst[p * MR + i] = a[i * lda + p];
        for (int64_t i = rows; i < MR; ++i) dst[p * MR + i] = 0.0f;
    }
}

// Moves the valid part of a tile from a buffer into C.
inline void put_tile(const float* t, int64_t ldt, float* c, int64_t ldc, int64_t rows,
                     int64_t cols, bool first) {
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
            const float v = t[i * ldt + j];
            c[i * ldc + j] = first ? v : c[i * ldc + j] + v;
        }
    }
}

// ------------------------------------------------------------ portable
struct Portable {
    static constexpr int MR = 8;
    static constexpr int NR = 8;
    static constexpr int64_t MC = 128;
    static constexpr int64_t NC = 2048;
    static constexpr int64_t KC = 256;

    static void pack(float* dst, const float* a, int64_t lda, int64_t rows, int64_t kc) {
        pack_rows_plain<MR>(dst, a, lda, rows, 0, kc);
    }

    static void tile(int64_t kc, const float* pa, const float* pb, float* c, int64_t ldc,
                     int64_t rows, int64_t cols, bool first) {
        typedef float f4 __attribute__((vector_size(16)));
        f4 lo[MR], hi[MR];
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
            lo[i] = f4{0.0f, 0.0f, 0.0f, 0.0f};
            hi[i] = f4{0.0f, 0.0f, 0.0f, 0.0f};
        }
        for (int64_t p = 0; p < kc; ++p, pa += MR, pb += NR) {
            f4 b0, b1;
            std::memcpy(&b0, pb, sizeof b0);
            std::memcpy(&b1, pb + 4, sizeof b1);
#pragma GCC unroll 8
            for (int i = 0; i < MR; ++i) {
                const float s = pa[i];
                const f4 v = {s, s, s, s};
                lo[i] += v * b0;
                hi[i] += v * b1;
            }
        }
        alignas(64) float t[MR * NR];
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
            std::memcpy(t + i * NR, &lo[i], sizeof(f4));
            std::memcpy(t + i * NR + 4, &hi[i], sizeof(f4));
        }
        put_tile(t, NR, c, ldc, rows, cols, first);
    }
};

#ifdef HAVE_X86

// ------------------------------------------------------------ AVX2 + FMA, 6 x 16
#define EACH6(F) F(0) F(1) F(2) F(3) F(4) F(5)

struct Avx2 {
    static constexpr int MR = 6;
    static constexpr int NR = 16;
    static constexpr int64_t MC = 114;
    static constexpr int64_t NC = 2048;
    static constexpr int64_t KC = 352;

    __attribute__((target("avx2,fma")))
    static void pack(float* dst, const float* a, int64_t lda, int64_t rows, int64_t kc) {
        int64_t p = 0;
        if (rows == MR) {
            const __m256 z = _mm256_setzero_ps();
            for (; p + 8 <= kc; p += 8) {
                const float* s = a + p;
                const __m256 r0 = _mm256_loadu_ps(s);
                const __m256 r1 = _mm256_loadu_ps(s + lda);
                const __m256 r2 = _mm256_loadu_ps(s + lda * 2);
                const __m256 r3 = _mm256_loadu_ps(s + lda * 3);
                const __m256 r4 = _mm256_loadu_ps(s + lda * 4);
                const __m256 r5 = _mm256_loadu_ps(s + lda * 5);
                const __m256 l01 = _mm256_unpacklo_ps(r0, r1), h01 = _mm256_unpackhi_ps(r0, r1);
                const __m256 l23 = _mm256_unpacklo_ps(r2, r3), h23 = _mm256_unpackhi_ps(r2, r3);
                const __m256 l45 = _mm256_unpacklo_ps(r4, r5), h45 = _mm256_unpackhi_ps(r4, r5);
                const __m256 u0 = _mm256_shuffle_ps(l01, l23, 0x44);  // rows 0..3, columns 0 | 4
                const __m256 u1 = _mm256_shuffle_ps(l01, l23, 0xEE);  // columns 1 | 5
                const __m256 u2 = _mm256_shuffle_ps(h01, h23, 0x44);  // columns 2 | 6
                const __m256 u3 = _mm256_shuffle_ps(h01, h23, 0xEE);  // columns 3 | 7
                const __m256 w0 = _mm256_shuffle_ps(l45, z, 0x44);    // rows 4, 5, 0, 0
                const __m256 w1 = _mm256_shuffle_ps(l45, z, 0xEE);
                const __m256 w2 = _mm256_shuffle_ps(h45, z, 0x44);
                const __m256 w3 = _mm256_shuffle_ps(h45, z, 0xEE);
                float* d = dst + p * MR;
                _mm256_storeu_ps(d, _mm256_permute2f128_ps(u0, w0, 0x20));
                _mm256_storeu_ps(d + 6, _mm256_permute2f128_ps(u1, w1, 0x20));
                _mm256_storeu_ps(d + 12, _mm256_permute2f128_ps(u2, w2, 0x20));
                _mm256_storeu_ps(d + 18, _mm256_permute2f128_ps(u3, w3, 0x20));
                _mm256_storeu_ps(d + 24, _mm256_permute2f128_ps(u0, w0, 0x31));
                _mm256_storeu_ps(d + 30, _mm256_permute2f128_ps(u1, w1, 0x31));
                _mm256_storeu_ps(d + 36, _mm256_permute2f128_ps(u2, w2, 0x31));
                _mm256_storeu_ps(d + 42, _mm256_permute2f128_ps(u3, w3, 0x31));
            }
        }
        pack_rows_plain<MR>(dst, a, lda, rows, p, kc);
    }

    __attribute__((target("avx2,fma")))
    static void tile(int64_t kc, const float* pa, const float* pb, float* c, int64_t ldc,
                     int64_t rows, int64_t cols, bool first) {
        const bool whole = rows == MR && cols == NR;
        if (whole) {
#define F(i) _mm_prefetch((const char*)(c + (i) * ldc), _MM_HINT_T1);
            EACH6(F)
#undef F
        }
#define F(i) __m256 l##i = _mm256_setzero_ps(), h##i = _mm256_setzero_ps();
        EACH6(F)
#undef F
#define MAC(i) { const __m256 v = _mm256_broadcast_ss(ra + (i)); \
                 l##i = _mm256_fmadd_ps(v, b0, l##i);            \
                 h##i = _mm256_fmadd_ps(v, b1, h##i); }
#define STEP(s) { const float* ra = pa + (s) * MR;                    \
                  const __m256 b0 = _mm256_load_ps(pb + (s) * NR);     \
                  const __m256 b1 = _mm256_load_ps(pb + (s) * NR + 8); \
                  EACH6(MAC) }
        int64_t left = kc;
        for (; left >= 4; left -= 4) {
            _mm_prefetch((const char*)(pa + 96), _MM_HINT_T0);
            STEP(0)
            STEP(1)
            _mm_prefetch((const char*)(pa + 112), _MM_HINT_T0);
            STEP(2)
            STEP(3)
            pa += 4 * MR;
            pb += 4 * NR;
        }
        for (; left > 0; --left) {
            STEP(0)
            pa += MR;
            pb += NR;
        }
#undef STEP
#undef MAC
        if (!whole) {
            alignas(64) float t[MR * NR];
#define F(i) _mm256_storeu_ps(t + (i) * NR, l##i); _mm256_storeu_ps(t + (i) * NR + 8, h##i);
            EACH6(F)
#undef F
            put_tile(t, NR, c, ldc, rows, cols, first);
        } else if (first) {
#define F(i) _mm256_storeu_ps(c + (i) * ldc, l##i); _mm256_storeu_ps(c + (i) * ldc + 8, h##i);
            EACH6(F)
#undef F
        } else {
#define F(i) { float* q = c + (i) * ldc;                                     \
               l##i = _mm256_add_ps(l##i, _mm256_loadu_ps(q));               \
               h##i = _mm256_add_ps(h##i, _mm256_loadu_ps(q + 8));           \
               _mm256_storeu_ps(q, l##i);                                    \
               _mm256_storeu_ps(q + 8, h##i); }
            EACH6(F)
#undef F
        }
    }
};

// ------------------------------------------------------------ AVX-512, 14 x 32
#define EACH14(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13)

struct Avx512 {
    static constexpr int MR = 14;
    static constexpr int NR = 32;
    static constexpr int64_t MC = 294;
    static constexpr int64_t NC = 2048;
    static constexpr int64_t KC = 384;

    __attribute__((target("avx512f,avx2,fma")))
    static void pack(float* dst, const float* a, int64_t lda, int64_t rows, int64_t kc) {
        int64_t p = 0;
        if (rows == MR) {
            const __m512 z = _mm512_setzero_ps();
            for (; p + 16 <= kc; p += 16) {
                const float* s = a + p;
                __m512 u[16];
                __m512 o[16];
// Four rows -> for each j the four rows' elements of columns j, 4+j, 8+j, 12+j.
#define FOUR(g, ra, rb, rc, rd)                                                        \
                {                                                                      \
                    const __m512 xa = ra, xb = rb, xc = rc, xd = rd;                   \
                    const __m512d lab = _mm512_castps_pd(_mm512_unpacklo_ps(xa, xb));  \
                    const __m512d hab = _mm512_castps_pd(_mm512_unpackhi_ps(xa, xb));  \
                    const __m512d lcd = _mm512_castps_pd(_mm512_unpacklo_ps(xc, xd));  \
                    const __m512d hcd = _mm512_castps_pd(_mm512_unpackhi_ps(xc, xd));  \
                    u[(g) * 4 + 0] = _mm512_castpd_ps(_mm512_unpacklo_pd(lab, lcd));   \
                    u[(g) * 4 + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lab, lcd));   \
                    u[(g) * 4 + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(hab, hcd));   \
                    u[(g) * 4 + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(hab, hcd));   \
                }
#define ROW(i) _mm512_loadu_ps(s + (i) * lda)
                FOUR(0, ROW(0), ROW(1), ROW(2), ROW(3))
                FOUR(1, ROW(4), ROW(5), ROW(6), ROW(7))
                FOUR(2, ROW(8), ROW(9), ROW(10), ROW(11))
                FOUR(3, ROW(12), ROW(13), z, z)
#undef ROW
#undef FOUR
// Transposition of the four 128-bit lanes.
#define LANES(j)                                                                     \
                {                                                                    \
                    const __m512 e0 = _mm512_shuffle_f32x4(u[j], u[(j) + 4], 0x88);  \
                    const __m512 e1 = _mm512_shuffle_f32x4(u[(j) + 8], u[(j) + 12], 0x88); \
                    const __m512 f0 = _mm512_shuffle_f32x4(u[j], u[(j) + 4], 0xDD);  \
                    const __m512 f1 = _mm512_shuffle_f32x4(u[(j) + 8], u[(j) + 12], 0xDD); \
                    o[(j)] = _mm512_shuffle_f32x4(e0, e1, 0x88);                     \
                    o[(j) + 8] = _mm512_shuffle_f32x4(e0, e1, 0xDD);                 \
                    o[(j) + 4] = _mm512_shuffle_f32x4(f0, f1, 0x88);                 \
                    o[(j) + 12] = _mm512_shuffle_f32x4(f0, f1, 0xDD);                \
                }
                LANES(0)
                LANES(1)
                LANES(2)
                LANES(3)
#undef LANES
                float* d = dst + p * MR;
#define F(i) _mm512_storeu_ps(d + (i) * MR, o[i]);
                EACH14(F)
                F(14)
                F(15)
#undef F
            }
        }
        pack_rows_plain<MR>(dst, a, lda, rows, p, kc);
    }

    __attribute__((target("avx512f,avx2,fma")))
    static void tile(int64_t kc, const float* pa, const float* pb, float* c, int64_t ldc,
                     int64_t rows, int64_t cols, bool first) {
        const bool whole = rows == MR && cols == NR;
        if (whole) {
#define F(i) _mm_prefetch((const char*)(c + (i) * ldc), _MM_HINT_T1); \
             _mm_prefetch((const char*)(c + (i) * ldc + 16), _MM_HINT_T1);
            EACH14(F)
#undef F
        }
#define F(i) __m512 l##i = _mm512_setzero_ps(), h##i = _mm512_setzero_ps();
        EACH14(F)
#undef F
#define MAC(i) { const __m512 v = _mm512_set1_ps(ra[i]);   \
                 l##i = _mm512_fmadd_ps(v, b0, l##i);      \
                 h##i = _mm512_fmadd_ps(v, b1, h##i); }
#define STEP(s) { const float* ra = pa + (s) * MR;                                       \
                  const __m512 b0 = _mm512_load_ps(pb + (s) * NR);                       \
                  const __m512 b1 = _mm512_load_ps(pb + (s) * NR + 16);                  \
                  _mm_prefetch((const char*)(pb + ((s) + 10) * NR), _MM_HINT_T0);        \
                  _mm_prefetch((const char*)(pb + ((s) + 10) * NR + 16), _MM_HINT_T0);   \
                  _mm_prefetch((const char*)(pa + 14 * MR + (s) * 16), _MM_HINT_T0);     \
                  EACH14(MAC) }
        int64_t left = kc;
        for (; left >= 4; left -= 4) {
            STEP(0)
            STEP(1)
            STEP(2)
            STEP(3)
            pa += 4 * MR;
            pb += 4 * NR;
        }
        for (; left > 0; --left) {
            STEP(0)
            pa += MR;
            pb += NR;
        }
#undef STEP
#undef MAC
        if (!whole) {
            alignas(64) float t[MR * NR];
#define F(i) _mm512_storeu_ps(t + (i) * NR, l##i); _mm512_storeu_ps(t + (i) * NR + 16, h##i);
            EACH14(F)
#undef F
            put_tile(t, NR, c, ldc, rows, cols, first);
        } else if (first) {
#define F(i) _mm512_storeu_ps(c + (i) * ldc, l##i); _mm512_storeu_ps(c + (i) * ldc + 16, h##i);
            EACH14(F)
#undef F
        } else {
#define F(i) { float* q = c + (i) * ldc;                                     \
               l##i = _mm512_add_ps(l##i, _mm512_loadu_ps(q));               \
               h##i = _mm512_add_ps(h##i, _mm512_loadu_ps(q + 16));          \
               _mm512_storeu_ps(q, l##i);                                    \
               _mm512_storeu_ps(q + 16, h##i); }
            EACH14(F)
#undef F
        }
    }
};

#endif  // HAVE_X86

// ------------------------------------------------------------ packing of B
template <int NR>
void pack_cols(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc) {
    const int64_t whole = nc / NR;
    const int64_t rest = nc % NR;
    for (int64_t p0 = 0; p0 < kc; p0 += 4) {
        const int64_t p1 = min64(p0 + 4, kc);
        for (int64_t j = 0; j < whole; ++j) {
            float* d = dst + j * kc * NR;
            const float* s = b + j * NR;
            for (int64_t p = p0; p < p1; ++p)
                std::memcpy(d + p * NR, s + p * ldb, sizeof(float) * NR);
        }
        if (rest != 0) {
            float* d = dst + whole * kc * NR;
            const float* s = b + whole * NR;
            for (int64_t p = p0; p < p1; ++p) {
                for (int64_t j = 0; j < rest; ++j) d[p * NR + j] = s[p * ldb + j];
                for (int64_t j = rest; j < NR; ++j) d[p * NR + j] = 0.0f;
            }
        }
    }
}

// Used only when no scratch memory can be had.
void without_scratch(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float* row = c + i * n;
        for (int64_t j = 0; j < n; ++j) row[j] = 0.0f;
        for (int64_t p = 0; p < k; ++p) {
            const float s = a[i * k + p];
            for (int64_t j = 0; j < n; ++j) row[j] += s * b[p * n + j];
        }
    }
}

// ------------------------------------------------------------ the blocked product
template <class T>
void blocked(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t MR = T::MR;
    constexpr int64_t NR = T::NR;
    constexpr int64_t KC = T::KC;

    // k in nearly equal parts, none longer than KC (a multiple of 8).
    const int64_t parts = (k + KC - 1) / KC;
    const int64_t kstep = min64(KC, ceil_to((k + parts - 1) / parts, 8));
    const int64_t mstep = min64(T::MC, ceil_to(m, MR));
    const int64_t nstep = min64(T::NC, ceil_to(n, NR));

    const int64_t size_b = ceil_to(nstep * kstep, 16) + 64;
    const int64_t size_a = ceil_to(mstep * kstep, 16) + 64;
    const size_t bytes = (size_t)(size_a + size_b) * sizeof(float);
    const size_t unit = bytes > ((size_t)1 << 20) ? ((size_t)2 << 20) : (size_t)4096;
    const size_t total = (bytes + unit - 1) / unit * unit;
    void* scratch = std::aligned_alloc(unit, total);
    if (scratch == nullptr) {
        without_scratch(c, a, b, m, n, k);
        return;
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (unit > 4096) (void)madvise(scratch, total, MADV_HUGEPAGE);
#endif
    float* const pb = (float*)scratch;
    float* const pa = pb + size_b;

    for (int64_t j0 = 0; j0 < n; j0 += nstep) {
        const int64_t nc = min64(nstep, n - j0);
        for (int64_t k0 = 0; k0 < k; k0 += kstep) {
            const int64_t kc = min64(kstep, k - k0);
            pack_cols<T::NR>(pb, b + k0 * n + j0, n, kc, nc);
            for (int64_t i0 = 0; i0 < m; i0 += mstep) {
                const int64_t mc = min64(mstep, m - i0);
                for (int64_t i = 0; i < mc; i += MR)
                    T::pack(pa + i * kc, a + (i0 + i) * k + k0, k, min64(MR, mc - i), kc);
                for (int64_t j = 0; j < nc; j += NR) {
                    const int64_t cols = min64(NR, nc - j);
                    for (int64_t i = 0; i < mc; i += MR) {
                        T::tile(kc, pa + i * kc, pb + j * kc, c + (i0 + i) * n + j0 + j, n,
                                min64(MR, mc - i), cols, k0 == 0);
                    }
                }
            }
        }
    }
    std::free(scratch);
}

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        for (int64_t i = 0; i < m * n; ++i) c[i] = 0.0f;
        return;
    }
#ifdef HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        blocked<Avx512>(c, a, b, m, n, k);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        blocked<Avx2>(c, a, b, m, n, k);
        return;
    }
#endif
    blocked<Portable>(c, a, b, m, n, k);
}
