#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

constexpr int64_t KC = 256;
constexpr int64_t NC = 1024;

typedef void (*Kern)(int64_t kc, const float* a, const float* b, float* c, int64_t ldc, bool add);

inline int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }

// Plain fallback: row by row, vectorised by the compiler over the columns.
void gemm_plain(float* __restrict c, const float* __restrict a, const float* __restrict b,
                int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float* __restrict ci = c + i * n;
        for (int64_t j = 0; j < n; ++j) ci[j] = 0.0f;
        for (int64_t p = 0; p < k; ++p) {
            const float t = a[i * k + p];
            const float* __restrict bp = b + p * n;
            for (int64_t j = 0; j < n; ++j) ci[j] += t * bp[j];
        }
    }
}

#if defined(__x86_64__) || defined(__aarch64__)

// One strip of mr rows of a, turned so that each step of k has its mr values side by side.
inline void pack_a_strip(float* dst, const float* src, int64_t lda, int64_t mr, int64_t kc) {
    int64_t r = 0;
#if defined(__x86_64__)
    for (; r + 4 <= mr; r += 4) {
        const float* s0 = src + (r + 0) * lda;
        const float* s1 = src + (r + 1) * lda;
        const float* s2 = src + (r + 2) * lda;
        const float* s3 = src + (r + 3) * lda;
        float* d = dst + r;
        int64_t p = 0;
        for (; p + 4 <= kc; p += 4) {
            __m128 v0 = _mm_loadu_ps(s0 + p);
            __m128 v1 = _mm_loadu_ps(s1 + p);
            __m128 v2 = _mm_loadu_ps(s2 + p);
            __m128 v3 = _mm_loadu_ps(s3 + p);
            _MM_TRANSPOSE4_PS(v0, v1, v2, v3);
            _mm_storeu_ps(d + (p + 0) * mr, v0);
            _mm_storeu_ps(d + (p + 1) * mr, v1);
            _mm_storeu_ps(d + (p + 2) * mr, v2);
            _mm_storeu_ps(d + (p + 3) * mr, v3);
        }
        for (; p < kc; ++p) {
            d[p * mr + 0] = s0[p];
            d[p * mr + 1] = s1[p];
            d[p * mr + 2] = s2[p];
            d[p * mr + 3] = s3[p];
        }
    }
#endif
    for (; r + 2 <= mr; r += 2) {
        const float* s0 = src + (r + 0) * lda;
        const float* s1 = src + (r + 1) * lda;
        float* d = dst + r;
        for (int64_t p = 0; p < kc; ++p) {
            d[p * mr + 0] = s0[p];
            d[p * mr + 1] = s1[p];
        }
    }
    for (; r < mr; ++r) {
        const float* s0 = src + r * lda;
        float* d = dst + r;
        for (int64_t p = 0; p < kc; ++p) d[p * mr] = s0[p];
    }
}

template <int NR>
inline void pack_b(float* dst, const float* src, int64_t ldb, int64_t kc, int64_t nc) {
    int64_t j = 0;
    for (; j + NR <= nc; j += NR) {
        const float* s = src + j;
        for (int64_t p = 0; p < kc; ++p) {
            std::memcpy(dst, s, NR * sizeof(float));
            dst += NR;
            s += ldb;
        }
    }
    if (j < nc) {
        const int64_t w = nc - j;
        const float* s = src + j;
        for (int64_t p = 0; p < kc; ++p) {
            for (int64_t q = 0; q < w; ++q) dst[q] = s[q];
            for (int64_t q = w; q < NR; ++q) dst[q] = 0.0f;
            dst += NR;
            s += ldb;
        }
    }
}

template <int MR, int NR, int MC>
void gemm_blocked(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k,
                  const Kern* kern) {
    const int64_t kcMax = min64(k, KC);
    const int64_t ncMax = (min64(n, NC) + NR - 1) / NR * NR;
    const int64_t mcMax = min64(m, MC);
    const int64_t sizeB = (kcMax * ncMax + 15) / 16 * 16;
    const int64_t sizeA = (kcMax * mcMax + 15) / 16 * 16;
    void* raw = std::malloc(static_cast<size_t>(sizeA + sizeB) * sizeof(float) + 64);
    if (!raw) {
        gemm_plain(c, a, b, m, n, k);
        return;
    }
    float* bufB = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(raw) + 63) &
                                           ~static_cast<uintptr_t>(63));
    float* bufA = bufB + sizeB;

    for (int64_t jc = 0; jc < n; jc += NC) {
        const int64_t nc = min64(NC, n - jc);
        for (int64_t pc = 0; pc < k; pc += KC) {
            const int64_t kc = min64(KC, k - pc);
            const bool add = pc != 0;
            pack_b<NR>(bufB, b + pc * n + jc, n, kc, nc);
            for (int64_t ic = 0; ic < m; ic += MC) {
                const int64_t mc = min64(MC, m - ic);
                for (int64_t ir = 0; ir < mc; ir += MR)
                    pack_a_strip(bufA + ir * kc, a + (ic + ir) * k + pc, k, min64(MR, mc - ir), kc);
                for (int64_t jr = 0; jr < nc; jr += NR) {
                    const float* bp = bufB + jr * kc;
                    const int64_t nr = min64(NR, nc - jr);
                    float* ct = c + ic * n + jc + jr;
                    if (nr == NR) {
                        for (int64_t ir = 0; ir < mc; ir += MR)
                            kern[min64(MR, mc - ir)](kc, bufA + ir * kc, bp, ct + ir * n, n, add);
                    } else {
                        alignas(64) float tmp[MR * NR];
                        for (int64_t ir = 0; ir < mc; ir += MR) {
                            const int64_t mr = min64(MR, mc - ir);
                            kern[mr](kc, bufA + ir * kc, bp, tmp, NR, false);
                            for (int64_t i = 0; i < mr; ++i) {
                                float* d = ct + (ir + i) * n;
                                const float* t = tmp + i * NR;
                                if (add) {
                                    for (int64_t j = 0; j < nr; ++j) d[j] += t[j];
                                } else {
                                    for (int64_t j = 0; j < nr; ++j) d[j] = t[j];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    std::free(raw);
}

#define L1(X) X(0)
#define L2(X) L1(X) X(1)
#define L3(X) L2(X) X(2)
#define L4(X) L3(X) X(3)
#define L5(X) L4(X) X(4)
#define L6(X) L5(X) X(5)
#define L7(X) L6(X) X(6)
#define L8(X) L7(X) X(7)
#define L9(X) L8(X) X(8)
#define L10(X) L9(X) X(9)
#define L11(X) L10(X) X(10)
#define L12(X) L11(X) X(11)

#if defined(__x86_64__)

// ---- AVX-512: up to 12 x 32 ----

#define Z_DECL(i) __m512 x##i = _mm512_setzero_ps(), y##i = _mm512_setzero_ps();
#define Z_PRE(i)                                                      \
    _mm_prefetch(reinterpret_cast<const char*>(c + (i) * ldc), _MM_HINT_T0); \
    _mm_prefetch(reinterpret_cast<const char*>(c + (i) * ldc + 16), _MM_HINT_T0);
#define Z_FMA(i)                                   \
    {                                              \
        const __m512 t = _mm512_set1_ps(ap[i]);    \
        x##i = _mm512_fmadd_ps(t, b0, x##i);       \
        y##i = _mm512_fmadd_ps(t, b1, y##i);       \
    }
#define Z_ADD(i)                                                           \
    x##i = _mm512_add_ps(x##i, _mm512_loadu_ps(c + (i) * ldc));            \
    y##i = _mm512_add_ps(y##i, _mm512_loadu_ps(c + (i) * ldc + 16));
#define Z_PUT(i)                                   \
    _mm512_storeu_ps(c + (i) * ldc, x##i);         \
    _mm512_storeu_ps(c + (i) * ldc + 16, y##i);
#define Z_STEP(MR, LIST, u)                        \
    {                                              \
        const float* ap = a + (u) * MR;            \
        const __m512 b0 = _mm512_load_ps(b + (u) * 32);      \
        const __m512 b1 = _mm512_load_ps(b + (u) * 32 + 16); \
        LIST(Z_FMA)                                \
    }
#define Z_KERNEL(MR, LIST)                                                              \
    __attribute__((target("avx512f,avx2,fma"))) void z_kernel_##MR(                     \
        int64_t kc, const float* a, const float* b, float* c, int64_t ldc, bool add) {  \
        LIST(Z_DECL)                                                                    \
        LIST(Z_PRE)                                                                     \
        int64_t p = 0;                                                                  \
        for (; p + 4 <= kc; p += 4) {                                                   \
            Z_STEP(MR, LIST, 0)                                                         \
            Z_STEP(MR, LIST, 1)                                                         \
            Z_STEP(MR, LIST, 2)                                                         \
            Z_STEP(MR, LIST, 3)                                                         \
            a += 4 * MR;                                                                \
            b += 4 * 32;                                                                \
        }                                                                               \
        for (; p < kc; ++p) {                                                           \
            Z_STEP(MR, LIST, 0)                                                         \
            a += MR;                                                                    \
            b += 32;                                                                    \
        }                                                                               \
        if (add) {                                                                      \
            LIST(Z_ADD)                                                                 \
        }                                                                               \
        LIST(Z_PUT)                                                                     \
    }

Z_KERNEL(1, L1)
Z_KERNEL(2, L2)
Z_KERNEL(3, L3)
Z_KERNEL(4, L4)
Z_KERNEL(5, L5)
Z_KERNEL(6, L6)
Z_KERNEL(7, L7)
Z_KERNEL(8, L8)
Z_KERNEL(9, L9)
Z_KERNEL(10, L10)
Z_KERNEL(11, L11)
Z_KERNEL(12, L12)

const Kern z_kernels[13] = {nullptr,    z_kernel_1, z_kernel_2,  z_kernel_3,  z_kernel_4,
                            z_kernel_5, z_kernel_6, z_kernel_7,  z_kernel_8,  z_kernel_9,
                            z_kernel_10, z_kernel_11, z_kernel_12};

// ---- AVX2 + FMA: up to 6 x 16 ----

#define Y_DECL(i) __m256 x##i = _mm256_setzero_ps(), y##i = _mm256_setzero_ps();
#define Y_PRE(i) _mm_prefetch(reinterpret_cast<const char*>(c + (i) * ldc), _MM_HINT_T0);
#define Y_FMA(i)                                        \
    {                                                   \
        const __m256 t = _mm256_broadcast_ss(ap + (i)); \
        x##i = _mm256_fmadd_ps(t, b0, x##i);            \
        y##i = _mm256_fmadd_ps(t, b1, y##i);            \
    }
#define Y_ADD(i)                                                          \
    x##i = _mm256_add_ps(x##i, _mm256_loadu_ps(c + (i) * ldc));           \
    y##i = _mm256_add_ps(y##i, _mm256_loadu_ps(c + (i) * ldc + 8));
#define Y_PUT(i)                                   \
    _mm256_storeu_ps(c + (i) * ldc, x##i);         \
    _mm256_storeu_ps(c + (i) * ldc + 8, y##i);
#define Y_STEP(MR, LIST, u)                        \
    {                                              \
        const float* ap = a + (u) * MR;            \
        const __m256 b0 = _mm256_load_ps(b + (u) * 16);     \
        const __m256 b1 = _mm256_load_ps(b + (u) * 16 + 8); \
        LIST(Y_FMA)                                \
    }
#define Y_KERNEL(MR, LIST)                                                              \
    __attribute__((target("avx2,fma"))) void y_kernel_##MR(                             \
        int64_t kc, const float* a, const float* b, float* c, int64_t ldc, bool add) {  \
        LIST(Y_DECL)                                                                    \
        LIST(Y_PRE)                                                                     \
        int64_t p = 0;                                                                  \
        for (; p + 4 <= kc; p += 4) {                                                   \
            Y_STEP(MR, LIST, 0)                                                         \
            Y_STEP(MR, LIST, 1)                                                         \
            Y_STEP(MR, LIST, 2)                                                         \
            Y_STEP(MR, LIST, 3)                                                         \
            a += 4 * MR;                                                                \
            b += 4 * 16;                                                                \
        }                                                                               \
        for (; p < kc; ++p) {                                                           \
            Y_STEP(MR, LIST, 0)                                                         \
            a += MR;                                                                    \
            b += 16;                                                                    \
        }                                                                               \
        if (add) {                                                                      \
            LIST(Y_ADD)                                                                 \
        }                                                                               \
        LIST(Y_PUT)                                                                     \
    }

Y_KERNEL(1, L1)
Y_KERNEL(2, L2)
Y_KERNEL(3, L3)
Y_KERNEL(4, L4)
Y_KERNEL(5, L5)
Y_KERNEL(6, L6)

const Kern y_kernels[7] = {nullptr,    y_kernel_1, y_kernel_2, y_kernel_3,
                           y_kernel_4, y_kernel_5, y_kernel_6};

#else  // aarch64

// ---- NEON: up to 12 x 8 ----

#define N_DECL(i) float32x4_t x##i = vdupq_n_f32(0.0f), y##i = vdupq_n_f32(0.0f);
#define N_FMA(i)                                \
    x##i = vfmaq_n_f32(x##i, b0, a[i]);         \
    y##i = vfmaq_n_f32(y##i, b1, a[i]);
#define N_ADD(i)                                               \
    x##i = vaddq_f32(x##i, vld1q_f32(c + (i) * ldc));          \
    y##i = vaddq_f32(y##i, vld1q_f32(c + (i) * ldc + 4));
#define N_PUT(i)                                \
    vst1q_f32(c + (i) * ldc, x##i);             \
    vst1q_f32(c + (i) * ldc + 4, y##i);
#define N_KERNEL(MR, LIST)                                                              \
    void n_kernel_##MR(int64_t kc, const float* a, const float* b, float* c,            \
                       int64_t ldc, bool add) {                                         \
        LIST(N_DECL)                                                                    \
        for (int64_t p = 0; p < kc; ++p) {                                              \
            const float32x4_t b0 = vld1q_f32(b);                                        \
            const float32x4_t b1 = vld1q_f32(b + 4);                                    \
            LIST(N_FMA)                                                                 \
            a += MR;                                                                    \
            b += 8;                                                                     \
        }                                                                               \
        if (add) {                                                                      \
            LIST(N_ADD)                                                                 \
        }                                                                               \
        LIST(N_PUT)                                                                     \
    }

N_KERNEL(1, L1)
N_KERNEL(2, L2)
N_KERNEL(3, L3)
N_KERNEL(4, L4)
N_KERNEL(5, L5)
N_KERNEL(6, L6)
N_KERNEL(7, L7)
N_KERNEL(8, L8)
N_KERNEL(9, L9)
N_KERNEL(10, L10)
N_KERNEL(11, L11)
N_KERNEL(12, L12)

const Kern n_kernels[13] = {nullptr,    n_kernel_1, n_kernel_2,  n_kernel_3,  n_kernel_4,
                            n_kernel_5, n_kernel_6, n_kernel_7,  n_kernel_8,  n_kernel_9,
                            n_kernel_10, n_kernel_11, n_kernel_12};

#endif

#endif  // x86-64 or aarch64

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        for (int64_t i = 0; i < m * n; ++i) c[i] = 0.0f;
        return;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        gemm_blocked<12, 32, 264>(c, a, b, m, n, k, z_kernels);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        gemm_blocked<6, 16, 192>(c, a, b, m, n, k, y_kernels);
        return;
    }
    gemm_plain(c, a, b, m, n, k);
#elif defined(__aarch64__)
    gemm_blocked<12, 8, 192>(c, a, b, m, n, k, n_kernels);
#else
    gemm_plain(c, a, b, m, n, k);
#endif
}
