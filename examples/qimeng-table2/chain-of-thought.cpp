#include <cstdint>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define GEMM_X86 1
#else
#define GEMM_X86 0
#endif

namespace {

using KernelFn = void (*)(int64_t kc, const float* a, const float* b, float* c,
                          int64_t ldc, bool acc);

#define ROWS6(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define ROWS14(X) ROWS6(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

#if GEMM_X86

// ---------------------------------------------------------------- AVX-512
#define TGT512 __attribute__((target("avx512f,avx2,fma")))

struct P512 {
    static constexpr int MR = 14;
    static constexpr int NR = 32;
    static constexpr int KC = 256;
    static constexpr int NC = 512;
    static constexpr int LDA = KC + 16;
    static constexpr int PS = KC * NR + NR;
    static KernelFn kernel(int rows);
    static void packB(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc);
};

template <int MR>
TGT512 void kern512(int64_t kc, const float* a, const float* b, float* c,
                    int64_t ldc, bool acc) {
    constexpr int LDA = P512::LDA;
#define PF(r)                                          \
    if constexpr ((r) < MR) {                          \
        __builtin_prefetch(c + (r) * ldc, 1, 3);       \
        __builtin_prefetch(c + (r) * ldc + 16, 1, 3);  \
        __builtin_prefetch(c + (r) * ldc + 31, 1, 3);  \
    }
    ROWS14(PF)
#undef PF
#define INIT(r)                          \
    __m512 x##r = _mm512_setzero_ps();   \
    __m512 y##r = _mm512_setzero_ps();   \
    (void)x##r;                          \
    (void)y##r;
    ROWS14(INIT)
#undef INIT

#define ROW(r, u)                                           \
    if constexpr ((r) < MR) {                               \
        const __m512 av = _mm512_set1_ps(a[(r) * LDA + (u)]); \
        x##r = _mm512_fmadd_ps(av, b0, x##r);               \
        y##r = _mm512_fmadd_ps(av, b1, y##r);               \
    }
#define STEP(u)                                                                   \
    {                                                                             \
        const __m512 b0 = _mm512_load_ps(b + (u) * 32);                           \
        const __m512 b1 = _mm512_load_ps(b + (u) * 32 + 16);                      \
        _mm_prefetch(reinterpret_cast<const char*>(b + ((u) + 12) * 32), _MM_HINT_T0);      \
        _mm_prefetch(reinterpret_cast<const char*>(b + ((u) + 12) * 32 + 16), _MM_HINT_T0); \
        ROW(0, u) ROW(1, u) ROW(2, u) ROW(3, u) ROW(4, u) ROW(5, u) ROW(6, u)     \
        ROW(7, u) ROW(8, u) ROW(9, u) ROW(10, u) ROW(11, u) ROW(12, u) ROW(13, u) \
    }
    int64_t p = kc;
    for (; p >= 4; p -= 4) {
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
        a += 4;
        b += 4 * 32;
    }
    for (; p > 0; --p) {
        STEP(0)
        a += 1;
        b += 32;
    }
#undef STEP
#undef ROW

    if (acc) {
#define ADD(r)                                                              \
    if constexpr ((r) < MR) {                                               \
        x##r = _mm512_add_ps(x##r, _mm512_loadu_ps(c + (r) * ldc));         \
        y##r = _mm512_add_ps(y##r, _mm512_loadu_ps(c + (r) * ldc + 16));    \
    }
        ROWS14(ADD)
#undef ADD
    }
#define PUT(r)                                          \
    if constexpr ((r) < MR) {                           \
        _mm512_storeu_ps(c + (r) * ldc, x##r);          \
        _mm512_storeu_ps(c + (r) * ldc + 16, y##r);     \
    }
    ROWS14(PUT)
#undef PUT
}

KernelFn P512::kernel(int rows) {
    switch (rows) {
        case 1: return &kern512<1>;
        case 2: return &kern512<2>;
        case 3: return &kern512<3>;
        case 4: return &kern512<4>;
        case 5: return &kern512<5>;
        case 6: return &kern512<6>;
        case 7: return &kern512<7>;
        case 8: return &kern512<8>;
        case 9: return &kern512<9>;
        case 10: return &kern512<10>;
        case 11: return &kern512<11>;
        case 12: return &kern512<12>;
        case 13: return &kern512<13>;
        default: return &kern512<14>;
    }
}

TGT512 void P512::packB(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc) {
    for (int64_t p = 0; p < kc; ++p) {
        const float* s = b + p * ldb;
        float* d = dst + p * NR;
        int64_t j = 0;
        for (; j + NR <= nc; j += NR, d += PS) {
            const __m512 v0 = _mm512_loadu_ps(s + j);
            const __m512 v1 = _mm512_loadu_ps(s + j + 16);
            _mm512_store_ps(d, v0);
            _mm512_store_ps(d + 16, v1);
        }
        if (j < nc) {
            const int64_t rem = nc - j;
            for (int64_t t = 0; t < NR; ++t) d[t] = t < rem ? s[j + t] : 0.0f;
        }
    }
}

// ------------------------------------------------------------------- AVX2
#define TGT256 __attribute__((target("avx2,fma")))

struct P256 {
    static constexpr int MR = 6;
    static constexpr int NR = 16;
    static constexpr int KC = 256;
    static constexpr int NC = 256;
    static constexpr int LDA = KC + 16;
    static constexpr int PS = KC * NR + NR;
    static KernelFn kernel(int rows);
    static void packB(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc);
};

template <int MR>
TGT256 void kern256(int64_t kc, const float* a, const float* b, float* c,
                    int64_t ldc, bool acc) {
    constexpr int LDA = P256::LDA;
#define PF(r)                                          \
    if constexpr ((r) < MR) {                          \
        __builtin_prefetch(c + (r) * ldc, 1, 3);       \
        __builtin_prefetch(c + (r) * ldc + 15, 1, 3);  \
    }
    ROWS6(PF)
#undef PF
#define INIT(r)                          \
    __m256 x##r = _mm256_setzero_ps();   \
    __m256 y##r = _mm256_setzero_ps();   \
    (void)x##r;                          \
    (void)y##r;
    ROWS6(INIT)
#undef INIT

#define ROW(r, u)                                                   \
    if constexpr ((r) < MR) {                                       \
        const __m256 av = _mm256_broadcast_ss(a + (r) * LDA + (u)); \
        x##r = _mm256_fmadd_ps(av, b0, x##r);                       \
        y##r = _mm256_fmadd_ps(av, b1, y##r);                       \
    }
#define STEP(u)                                                                        \
    {                                                                                  \
        const __m256 b0 = _mm256_load_ps(b + (u) * 16);                                \
        const __m256 b1 = _mm256_load_ps(b + (u) * 16 + 8);                            \
        _mm_prefetch(reinterpret_cast<const char*>(b + ((u) + 20) * 16), _MM_HINT_T0); \
        ROW(0, u) ROW(1, u) ROW(2, u) ROW(3, u) ROW(4, u) ROW(5, u)                    \
    }
    int64_t p = kc;
    for (; p >= 4; p -= 4) {
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
        a += 4;
        b += 4 * 16;
    }
    for (; p > 0; --p) {
        STEP(0)
        a += 1;
        b += 16;
    }
#undef STEP
#undef ROW

    if (acc) {
#define ADD(r)                                                             \
    if constexpr ((r) < MR) {                                              \
        x##r = _mm256_add_ps(x##r, _mm256_loadu_ps(c + (r) * ldc));        \
        y##r = _mm256_add_ps(y##r, _mm256_loadu_ps(c + (r) * ldc + 8));    \
    }
        ROWS6(ADD)
#undef ADD
    }
#define PUT(r)                                         \
    if constexpr ((r) < MR) {                          \
        _mm256_storeu_ps(c + (r) * ldc, x##r);         \
        _mm256_storeu_ps(c + (r) * ldc + 8, y##r);     \
    }
    ROWS6(PUT)
#undef PUT
}

KernelFn P256::kernel(int rows) {
    switch (rows) {
        case 1: return &kern256<1>;
        case 2: return &kern256<2>;
        case 3: return &kern256<3>;
        case 4: return &kern256<4>;
        case 5: return &kern256<5>;
        default: return &kern256<6>;
    }
}

TGT256 void P256::packB(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc) {
    for (int64_t p = 0; p < kc; ++p) {
        const float* s = b + p * ldb;
        float* d = dst + p * NR;
        int64_t j = 0;
        for (; j + NR <= nc; j += NR, d += PS) {
            const __m256 v0 = _mm256_loadu_ps(s + j);
            const __m256 v1 = _mm256_loadu_ps(s + j + 8);
            _mm256_store_ps(d, v0);
            _mm256_store_ps(d + 8, v1);
        }
        if (j < nc) {
            const int64_t rem = nc - j;
            for (int64_t t = 0; t < NR; ++t) d[t] = t < rem ? s[j + t] : 0.0f;
        }
    }
}

#endif  // GEMM_X86

// ------------------------------------------- portable, 128-bit vectors
typedef float v4 __attribute__((vector_size(16)));
typedef float v4u __attribute__((vector_size(16), aligned(4), may_alias));

struct P128 {
    static constexpr int MR = 6;
    static constexpr int NR = 8;
    static constexpr int KC = 256;
    static constexpr int NC = 256;
    static constexpr int LDA = KC + 16;
    static constexpr int PS = KC * NR + NR;
    static KernelFn kernel(int rows);
    static void packB(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc);
};

template <int MR>
void kern128(int64_t kc, const float* a, const float* b, float* c, int64_t ldc, bool acc) {
    constexpr int LDA = P128::LDA;
#define INIT(r)                        \
    v4 x##r = {0.0f, 0.0f, 0.0f, 0.0f}; \
    v4 y##r = {0.0f, 0.0f, 0.0f, 0.0f}; \
    (void)x##r;                        \
    (void)y##r;
    ROWS6(INIT)
#undef INIT
    for (int64_t p = 0; p < kc; ++p) {
        const v4 b0 = *reinterpret_cast<const v4u*>(b);
        const v4 b1 = *reinterpret_cast<const v4u*>(b + 4);
#define ROW(r)                                \
    if constexpr ((r) < MR) {                 \
        const float s = a[(r) * LDA];         \
        const v4 av = {s, s, s, s};           \
        x##r += av * b0;                      \
        y##r += av * b1;                      \
    }
        ROWS6(ROW)
#undef ROW
        a += 1;
        b += 8;
    }
    if (acc) {
#define ADD(r)                                                    \
    if constexpr ((r) < MR) {                                     \
        const v4 t0 = *reinterpret_cast<const v4u*>(c + (r) * ldc);     \
        const v4 t1 = *reinterpret_cast<const v4u*>(c + (r) * ldc + 4); \
        x##r += t0;                                               \
        y##r += t1;                                               \
    }
        ROWS6(ADD)
#undef ADD
    }
#define PUT(r)                                             \
    if constexpr ((r) < MR) {                              \
        *reinterpret_cast<v4u*>(c + (r) * ldc) = x##r;     \
        *reinterpret_cast<v4u*>(c + (r) * ldc + 4) = y##r; \
    }
    ROWS6(PUT)
#undef PUT
}

KernelFn P128::kernel(int rows) {
    switch (rows) {
        case 1: return &kern128<1>;
        case 2: return &kern128<2>;
        case 3: return &kern128<3>;
        case 4: return &kern128<4>;
        case 5: return &kern128<5>;
        default: return &kern128<6>;
    }
}

void P128::packB(float* dst, const float* b, int64_t ldb, int64_t kc, int64_t nc) {
    for (int64_t p = 0; p < kc; ++p) {
        const float* s = b + p * ldb;
        float* d = dst + p * NR;
        int64_t j = 0;
        for (; j + NR <= nc; j += NR, d += PS) std::memcpy(d, s + j, NR * sizeof(float));
        if (j < nc) {
            const int64_t rem = nc - j;
            for (int64_t t = 0; t < NR; ++t) d[t] = t < rem ? s[j + t] : 0.0f;
        }
    }
}

// ----------------------------------------------------------------- driver
template <class P>
__attribute__((noinline)) void drive(float* c, const float* a, const float* b, int64_t m,
                                     int64_t n, int64_t k) {
    static_assert(P::NC % P::NR == 0, "whole panels");
    alignas(64) float bp[(P::NC / P::NR) * P::PS];
    alignas(64) float ap[P::MR * P::LDA];
    alignas(64) float tile[P::MR * P::NR];

    for (int64_t jc = 0; jc < n; jc += P::NC) {
        const int64_t nc = n - jc < P::NC ? n - jc : P::NC;
        for (int64_t pc = 0; pc < k; pc += P::KC) {
            const int64_t kc = k - pc < P::KC ? k - pc : P::KC;
            const bool acc = pc != 0;
            P::packB(bp, b + pc * n + jc, n, kc, nc);

            for (int64_t i = 0; i < m;) {
                const int64_t left = m - i;
                int64_t rows = left;
                if (left >= 2 * P::MR)
                    rows = P::MR;
                else if (left > P::MR)
                    rows = (left + 1) / 2;

                const float* as = a + i * k + pc;
                for (int64_t r = 0; r < rows; ++r)
                    std::memcpy(ap + r * P::LDA, as + r * k,
                                static_cast<std::size_t>(kc) * sizeof(float));

                const KernelFn fn = P::kernel(static_cast<int>(rows));
                float* ci = c + i * n + jc;
                const float* bpan = bp;
                int64_t j = 0;
                for (; j + P::NR <= nc; j += P::NR, bpan += P::PS)
                    fn(kc, ap, bpan, ci + j, n, acc);
                if (j < nc) {
                    const int64_t rem = nc - j;
                    fn(kc, ap, bpan, tile, P::NR, false);
                    for (int64_t r = 0; r < rows; ++r) {
                        float* q = ci + r * n + j;
                        const float* t = tile + r * P::NR;
                        if (acc)
                            for (int64_t x = 0; x < rem; ++x) q[x] += t[x];
                        else
                            for (int64_t x = 0; x < rem; ++x) q[x] = t[x];
                    }
                }
                i += rows;
            }
        }
    }
}

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n,
                     int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        for (int64_t i = 0; i < m * n; ++i) c[i] = 0.0f;
        return;
    }
#if GEMM_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        drive<P512>(c, a, b, m, n, k);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        drive<P256>(c, a, b, m, n, k);
        return;
    }
#endif
    drive<P128>(c, a, b, m, n, k);
}
