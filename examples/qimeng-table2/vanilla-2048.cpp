#include <cstdint>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define GEMM_X86 1
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

inline int64_t imin(int64_t x, int64_t y) { return x < y ? x : y; }
inline int64_t round_up(int64_t x, int64_t q) { return (x + q - 1) / q * q; }

// Scalar packing of a (possibly partial) panel of A, columns [p0, kc).
template <int MR>
inline void pack_a_scalar(float* dst, const float* a, int64_t lda, int64_t mr,
                          int64_t p0, int64_t kc) {
    for (int64_t p = p0; p < kc; ++p) {
        float* d = dst + p * MR;
        for (int64_t i = 0; i < mr; ++i) d[i] = a[i * lda + p];
        for (int64_t i = mr; i < MR; ++i) d[i] = 0.0f;
    }
}

inline void store_edge(const float* tmp, int64_t ldt, float* c, int64_t ldc,
                       int64_t mr, int64_t nr, bool first) {
    for (int64_t i = 0; i < mr; ++i) {
        const float* t = tmp + i * ldt;
        float* d = c + i * ldc;
        if (first) {
            for (int64_t j = 0; j < nr; ++j) d[j] = t[j];
        } else {
            for (int64_t j = 0; j < nr; ++j) d[j] += t[j];
        }
    }
}

// ---------------------------------------------------------------- generic
struct Generic {
    static constexpr int MR = 8;
    static constexpr int NR = 8;
    static constexpr int64_t KC = 256;
    static constexpr int64_t MC = 128;
    static constexpr int64_t NC = 2048;

    static void pack_a(float* dst, const float* a, int64_t lda, int64_t mr, int64_t kc) {
        pack_a_scalar<MR>(dst, a, lda, mr, 0, kc);
    }

    static void kern(int64_t kc, const float* ap, const float* bp, float* c,
                     int64_t ldc, int64_t mr, int64_t nr, bool first) {
        typedef float v4 __attribute__((vector_size(16)));
        v4 acc[MR][2];
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
            acc[i][0] = v4{0.0f, 0.0f, 0.0f, 0.0f};
            acc[i][1] = v4{0.0f, 0.0f, 0.0f, 0.0f};
        }
        for (int64_t p = 0; p < kc; ++p) {
            v4 b0, b1;
            std::memcpy(&b0, bp, 16);
            std::memcpy(&b1, bp + 4, 16);
#pragma GCC unroll 8
            for (int i = 0; i < MR; ++i) {
                const float s = ap[i];
                const v4 t = {s, s, s, s};
                acc[i][0] += t * b0;
                acc[i][1] += t * b1;
            }
            ap += MR;
            bp += NR;
        }
        alignas(64) float tmp[MR * NR];
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
            std::memcpy(tmp + i * NR, &acc[i][0], 16);
            std::memcpy(tmp + i * NR + 4, &acc[i][1], 16);
        }
        store_edge(tmp, NR, c, ldc, mr, nr, first);
    }
};

#ifdef GEMM_X86

// ---------------------------------------------------------------- AVX2 + FMA
#define GEMM_ROWS6(X) X(0) X(1) X(2) X(3) X(4) X(5)

struct Avx2 {
    static constexpr int MR = 6;
    static constexpr int NR = 16;
    static constexpr int64_t KC = 352;
    static constexpr int64_t MC = 6 * 19;
    static constexpr int64_t NC = 2048;

    __attribute__((target("avx2,fma")))
    static void pack_a(float* dst, const float* a, int64_t lda, int64_t mr, int64_t kc) {
        int64_t p = 0;
        if (mr == MR) {
            const __m256 z = _mm256_setzero_ps();
            for (; p + 8 <= kc; p += 8) {
                const float* s = a + p;
                const __m256 r0 = _mm256_loadu_ps(s);
                const __m256 r1 = _mm256_loadu_ps(s + lda);
                const __m256 r2 = _mm256_loadu_ps(s + 2 * lda);
                const __m256 r3 = _mm256_loadu_ps(s + 3 * lda);
                const __m256 r4 = _mm256_loadu_ps(s + 4 * lda);
                const __m256 r5 = _mm256_loadu_ps(s + 5 * lda);
                const __m256 t0 = _mm256_unpacklo_ps(r0, r1);
                const __m256 t1 = _mm256_unpackhi_ps(r0, r1);
                const __m256 t2 = _mm256_unpacklo_ps(r2, r3);
                const __m256 t3 = _mm256_unpackhi_ps(r2, r3);
                const __m256 t4 = _mm256_unpacklo_ps(r4, r5);
                const __m256 t5 = _mm256_unpackhi_ps(r4, r5);
                const __m256 s0 = _mm256_shuffle_ps(t0, t2, 0x44);
                const __m256 s1 = _mm256_shuffle_ps(t0, t2, 0xEE);
                const __m256 s2 = _mm256_shuffle_ps(t1, t3, 0x44);
                const __m256 s3 = _mm256_shuffle_ps(t1, t3, 0xEE);
                const __m256 s4 = _mm256_shuffle_ps(t4, z, 0x44);
                const __m256 s5 = _mm256_shuffle_ps(t4, z, 0xEE);
                const __m256 s6 = _mm256_shuffle_ps(t5, z, 0x44);
                const __m256 s7 = _mm256_shuffle_ps(t5, z, 0xEE);
                float* d = dst + p * MR;
                // Overlapping stores, in increasing order.
                _mm256_storeu_ps(d + 0 * MR, _mm256_permute2f128_ps(s0, s4, 0x20));
                _mm256_storeu_ps(d + 1 * MR, _mm256_permute2f128_ps(s1, s5, 0x20));
                _mm256_storeu_ps(d + 2 * MR, _mm256_permute2f128_ps(s2, s6, 0x20));
                _mm256_storeu_ps(d + 3 * MR, _mm256_permute2f128_ps(s3, s7, 0x20));
                _mm256_storeu_ps(d + 4 * MR, _mm256_permute2f128_ps(s0, s4, 0x31));
                _mm256_storeu_ps(d + 5 * MR, _mm256_permute2f128_ps(s1, s5, 0x31));
                _mm256_storeu_ps(d + 6 * MR, _mm256_permute2f128_ps(s2, s6, 0x31));
                _mm256_storeu_ps(d + 7 * MR, _mm256_permute2f128_ps(s3, s7, 0x31));
            }
        }
        pack_a_scalar<MR>(dst, a, lda, mr, p, kc);
    }

    __attribute__((target("avx2,fma")))
    static void kern(int64_t kc, const float* ap, const float* bp, float* c,
                     int64_t ldc, int64_t mr, int64_t nr, bool first) {
        const bool full = (mr == MR) && (nr == NR);
        if (full) {
#define GEMM_PF(i) _mm_prefetch((const char*)(c + (i) * ldc), _MM_HINT_T0); \
                   _mm_prefetch((const char*)(c + (i) * ldc + 15), _MM_HINT_T0);
            GEMM_ROWS6(GEMM_PF)
#undef GEMM_PF
        }
#define GEMM_DECL(i) __m256 x##i = _mm256_setzero_ps(), y##i = _mm256_setzero_ps();
        GEMM_ROWS6(GEMM_DECL)
#undef GEMM_DECL
#define GEMM_FMA(i) { const __m256 t = _mm256_broadcast_ss(aq + (i)); \
                      x##i = _mm256_fmadd_ps(t, b0, x##i);            \
                      y##i = _mm256_fmadd_ps(t, b1, y##i); }
#define GEMM_STEP(u) { const float* aq = ap + (u) * MR;                      \
                       const __m256 b0 = _mm256_load_ps(bp + (u) * NR);      \
                       const __m256 b1 = _mm256_load_ps(bp + (u) * NR + 8);  \
                       GEMM_ROWS6(GEMM_FMA) }
        int64_t p = 0;
        for (; p + 4 <= kc; p += 4) {
            _mm_prefetch((const char*)(ap + 96), _MM_HINT_T0);
            GEMM_STEP(0)
            GEMM_STEP(1)
            _mm_prefetch((const char*)(ap + 112), _MM_HINT_T0);
            GEMM_STEP(2)
            GEMM_STEP(3)
            ap += 4 * MR;
            bp += 4 * NR;
        }
        for (; p < kc; ++p) {
            GEMM_STEP(0)
            ap += MR;
            bp += NR;
        }
#undef GEMM_STEP
#undef GEMM_FMA
        if (full) {
            if (first) {
#define GEMM_ST(i) _mm256_storeu_ps(c + (i) * ldc, x##i); \
                   _mm256_storeu_ps(c + (i) * ldc + 8, y##i);
                GEMM_ROWS6(GEMM_ST)
#undef GEMM_ST
            } else {
#define GEMM_ST(i) { float* q = c + (i) * ldc;                                        \
                     _mm256_storeu_ps(q, _mm256_add_ps(_mm256_loadu_ps(q), x##i));    \
                     _mm256_storeu_ps(q + 8, _mm256_add_ps(_mm256_loadu_ps(q + 8), y##i)); }
                GEMM_ROWS6(GEMM_ST)
#undef GEMM_ST
            }
        } else {
            alignas(64) float tmp[MR * NR];
#define GEMM_ST(i) _mm256_storeu_ps(tmp + (i) * NR, x##i); \
                   _mm256_storeu_ps(tmp + (i) * NR + 8, y##i);
            GEMM_ROWS6(GEMM_ST)
#undef GEMM_ST
            store_edge(tmp, NR, c, ldc, mr, nr, first);
        }
    }
};

// ---------------------------------------------------------------- AVX-512
#define GEMM_ROWS14(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

struct Avx512 {
    static constexpr int MR = 14;
    static constexpr int NR = 32;
    static constexpr int64_t KC = 416;
    static constexpr int64_t MC = 14 * 21;
    static constexpr int64_t NC = 2048;

    __attribute__((target("avx512f,avx2,fma")))
    static void pack_a(float* dst, const float* a, int64_t lda, int64_t mr, int64_t kc) {
        int64_t p = 0;
        if (mr == MR) {
            for (; p + 16 <= kc; p += 16) {
                const float* s = a + p;
                __m512 u[16], o[16];
#define GEMM_LD(i) _mm512_loadu_ps(s + (i) * lda)
#define GEMM_QUAD(g, r0, r1, r2, r3)                                                   \
                {                                                                      \
                    const __m512 q0 = r0, q1 = r1, q2 = r2, q3 = r3;                   \
                    const __m512d t0 = _mm512_castps_pd(_mm512_unpacklo_ps(q0, q1));   \
                    const __m512d t1 = _mm512_castps_pd(_mm512_unpackhi_ps(q0, q1));   \
                    const __m512d t2 = _mm512_castps_pd(_mm512_unpacklo_ps(q2, q3));   \
                    const __m512d t3 = _mm512_castps_pd(_mm512_unpackhi_ps(q2, q3));   \
                    u[4 * (g) + 0] = _mm512_castpd_ps(_mm512_unpacklo_pd(t0, t2));     \
                    u[4 * (g) + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t0, t2));     \
                    u[4 * (g) + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(t1, t3));     \
                    u[4 * (g) + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(t1, t3));     \
                }
                GEMM_QUAD(0, GEMM_LD(0), GEMM_LD(1), GEMM_LD(2), GEMM_LD(3))
                GEMM_QUAD(1, GEMM_LD(4), GEMM_LD(5), GEMM_LD(6), GEMM_LD(7))
                GEMM_QUAD(2, GEMM_LD(8), GEMM_LD(9), GEMM_LD(10), GEMM_LD(11))
                GEMM_QUAD(3, GEMM_LD(12), GEMM_LD(13), _mm512_setzero_ps(), _mm512_setzero_ps())
#undef GEMM_QUAD
#undef GEMM_LD
#define GEMM_LANES(j)                                                              \
                {                                                                  \
                    const __m512 v0 = _mm512_shuffle_f32x4(u[j], u[4 + (j)], 0x88);        \
                    const __m512 v1 = _mm512_shuffle_f32x4(u[j], u[4 + (j)], 0xdd);        \
                    const __m512 v2 = _mm512_shuffle_f32x4(u[8 + (j)], u[12 + (j)], 0x88); \
                    const __m512 v3 = _mm512_shuffle_f32x4(u[8 + (j)], u[12 + (j)], 0xdd); \
                    o[(j)] = _mm512_shuffle_f32x4(v0, v2, 0x88);                   \
                    o[4 + (j)] = _mm512_shuffle_f32x4(v1, v3, 0x88);               \
                    o[8 + (j)] = _mm512_shuffle_f32x4(v0, v2, 0xdd);               \
                    o[12 + (j)] = _mm512_shuffle_f32x4(v1, v3, 0xdd);              \
                }
                GEMM_LANES(0)
                GEMM_LANES(1)
                GEMM_LANES(2)
                GEMM_LANES(3)
#undef GEMM_LANES
                float* d = dst + p * MR;
                // Overlapping stores, in increasing order.
#define GEMM_ST(i) _mm512_storeu_ps(d + (i) * MR, o[i]);
                GEMM_ROWS14(GEMM_ST)
                GEMM_ST(14)
                GEMM_ST(15)
#undef GEMM_ST
            }
        }
        pack_a_scalar<MR>(dst, a, lda, mr, p, kc);
    }

    __attribute__((target("avx512f,avx2,fma")))
    static void kern(int64_t kc, const float* ap, const float* bp, float* c,
                     int64_t ldc, int64_t mr, int64_t nr, bool first) {
        const bool full = (mr == MR) && (nr == NR);
        if (full) {
            // Rows of C often collide in L1, so bring them to L2 only.
#define GEMM_PF(i) _mm_prefetch((const char*)(c + (i) * ldc), _MM_HINT_T1); \
                   _mm_prefetch((const char*)(c + (i) * ldc + 16), _MM_HINT_T1);
            GEMM_ROWS14(GEMM_PF)
#undef GEMM_PF
        }
#define GEMM_DECL(i) __m512 x##i = _mm512_setzero_ps(), y##i = _mm512_setzero_ps();
        GEMM_ROWS14(GEMM_DECL)
#undef GEMM_DECL
#define GEMM_FMA(i) { const __m512 t = _mm512_set1_ps(aq[i]);        \
                      x##i = _mm512_fmadd_ps(t, b0, x##i);           \
                      y##i = _mm512_fmadd_ps(t, b1, y##i); }
#define GEMM_STEP(u) { const float* aq = ap + (u) * MR;                             \
                       const __m512 b0 = _mm512_load_ps(bp + (u) * NR);             \
                       const __m512 b1 = _mm512_load_ps(bp + (u) * NR + 16);        \
                       _mm_prefetch((const char*)(bp + ((u) + 12) * NR), _MM_HINT_T0);      \
                       _mm_prefetch((const char*)(bp + ((u) + 12) * NR + 16), _MM_HINT_T0); \
                       _mm_prefetch((const char*)(ap + 16 * MR + (u) * 16), _MM_HINT_T0);   \
                       GEMM_ROWS14(GEMM_FMA) }
        int64_t p = 0;
        for (; p + 4 <= kc; p += 4) {
            GEMM_STEP(0)
            GEMM_STEP(1)
            GEMM_STEP(2)
            GEMM_STEP(3)
            ap += 4 * MR;
            bp += 4 * NR;
        }
        for (; p < kc; ++p) {
            GEMM_STEP(0)
            ap += MR;
            bp += NR;
        }
#undef GEMM_STEP
#undef GEMM_FMA
        if (full) {
            if (first) {
#define GEMM_ST(i) _mm512_storeu_ps(c + (i) * ldc, x##i); \
                   _mm512_storeu_ps(c + (i) * ldc + 16, y##i);
                GEMM_ROWS14(GEMM_ST)
#undef GEMM_ST
            } else {
#define GEMM_ST(i) { float* q = c + (i) * ldc;                                          \
                     _mm512_storeu_ps(q, _mm512_add_ps(_mm512_loadu_ps(q), x##i));      \
                     _mm512_storeu_ps(q + 16, _mm512_add_ps(_mm512_loadu_ps(q + 16), y##i)); }
                GEMM_ROWS14(GEMM_ST)
#undef GEMM_ST
            }
        } else {
            alignas(64) float tmp[MR * NR];
#define GEMM_ST(i) _mm512_storeu_ps(tmp + (i) * NR, x##i); \
                   _mm512_storeu_ps(tmp + (i) * NR + 16, y##i);
            GEMM_ROWS14(GEMM_ST)
#undef GEMM_ST
            store_edge(tmp, NR, c, ldc, mr, nr, first);
        }
    }
};

#endif  // GEMM_X86

// ---------------------------------------------------------------- driver
template <int NR>
void pack_b(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc) {
    const int64_t full = nc / NR;
    const int64_t rem = nc - full * NR;
    for (int64_t p0 = 0; p0 < kc; p0 += 4) {
        const int64_t pe = imin(p0 + 4, kc);
        for (int64_t j = 0; j < full; ++j) {
            float* d = dst + j * NR * kc;
            const float* s = b + j * NR;
            for (int64_t p = p0; p < pe; ++p)
                std::memcpy(d + p * NR, s + p * ldb, NR * sizeof(float));
        }
        if (rem) {
            float* d = dst + full * NR * kc;
            const float* s = b + full * NR;
            for (int64_t p = p0; p < pe; ++p) {
                for (int64_t j = 0; j < rem; ++j) d[p * NR + j] = s[p * ldb + j];
                for (int64_t j = rem; j < NR; ++j) d[p * NR + j] = 0.0f;
            }
        }
    }
}

void gemm_plain(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float* ci = c + i * n;
        for (int64_t j = 0; j < n; ++j) ci[j] = 0.0f;
        for (int64_t p = 0; p < k; ++p) {
            const float s = a[i * k + p];
            const float* bp = b + p * n;
            for (int64_t j = 0; j < n; ++j) ci[j] += s * bp[j];
        }
    }
}

template <class K>
void driver(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    const int64_t MR = K::MR, NR = K::NR;
    const int64_t MC = K::MC, NC = K::NC, KC = K::KC;

    const int64_t parts = (k + KC - 1) / KC;
    const int64_t kcb = imin(KC, round_up((k + parts - 1) / parts, 16));
    const int64_t ncb = imin(NC, round_up(n, NR));
    const int64_t mcb = imin(MC, round_up(m, MR));

    const int64_t nb = round_up(ncb * kcb, 64) + 64;
    const int64_t na = round_up(mcb * kcb, 64) + 64;
    const size_t bytes = (size_t)(nb + na) * sizeof(float);
    const size_t align = bytes >= ((size_t)1 << 20) ? ((size_t)1 << 21) : (size_t)4096;
    const size_t size = (bytes + align - 1) / align * align;
    void* mem = std::aligned_alloc(align, size);
    if (!mem) {
        gemm_plain(c, a, b, m, n, k);
        return;
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (align > 4096) (void)madvise(mem, size, MADV_HUGEPAGE);
#endif
    float* pb = (float*)mem;
    float* pa = pb + nb;

    for (int64_t jc = 0; jc < n; jc += ncb) {
        const int64_t nc = imin(ncb, n - jc);
        for (int64_t pc = 0; pc < k; pc += kcb) {
            const int64_t kc = imin(kcb, k - pc);
            const bool first = (pc == 0);
            pack_b<K::NR>(pb, b + pc * n + jc, n, kc, nc);
            for (int64_t ic = 0; ic < m; ic += mcb) {
                const int64_t mc = imin(mcb, m - ic);
                for (int64_t ir = 0; ir < mc; ir += MR)
                    K::pack_a(pa + ir * kc, a + (ic + ir) * k + pc, k, imin(MR, mc - ir), kc);
                for (int64_t jr = 0; jr < nc; jr += NR) {
                    const int64_t nr = imin(NR, nc - jr);
                    const float* bp = pb + jr * kc;
                    for (int64_t ir = 0; ir < mc; ir += MR) {
                        K::kern(kc, pa + ir * kc, bp, c + (ic + ir) * n + jc + jr, n,
                                imin(MR, mc - ir), nr, first);
                    }
                }
            }
        }
    }
    std::free(mem);
}

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        for (int64_t i = 0; i < m * n; ++i) c[i] = 0.0f;
        return;
    }
#ifdef GEMM_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        driver<Avx512>(c, a, b, m, n, k);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        driver<Avx2>(c, a, b, m, n, k);
        return;
    }
#endif
    driver<Generic>(c, a, b, m, n, k);
}
