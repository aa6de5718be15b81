/* What can one core of this machine do at best? Prints lines "move BYTES BYTES_PER_SECOND" and "fma
   OPERATIONS_PER_SECOND", a product and a sum in one instruction counted as two. Arguments: working sets in bytes. Each
   is moved in three ways (copied, two arrays added into a third, read only), and the best of many short stretches
   counts: a bound must not be too low. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDTH 64
#define CHAINS 20
#elif defined(__AVX__)
#define WIDTH 32
#define CHAINS 12
#else
#define WIDTH 16
#define CHAINS 12
#endif
#if defined(__aarch64__)
#undef CHAINS
#define CHAINS 24
#endif

typedef float floats __attribute__((vector_size(WIDTH)));
typedef uint32_t words __attribute__((vector_size(WIDTH)));

static volatile float sink;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

__attribute__((noinline)) static void copy(floats *out, const floats *in, const floats *unused, size_t n) {
    (void)unused;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        floats a = in[i], b = in[i + 1], c = in[i + 2], d = in[i + 3];
        floats e = in[i + 4], f = in[i + 5], g = in[i + 6], h = in[i + 7];
        out[i] = a, out[i + 1] = b, out[i + 2] = c, out[i + 3] = d;
        out[i + 4] = e, out[i + 5] = f, out[i + 6] = g, out[i + 7] = h;
    }
}

__attribute__((noinline)) static void add(floats *out, const floats *in, const floats *other, size_t n) {
    for (size_t i = 0; i + 4 <= n; i += 4) {
        floats a = in[i] + other[i], b = in[i + 1] + other[i + 1];
        floats c = in[i + 2] + other[i + 2], d = in[i + 3] + other[i + 3];
        out[i] = a, out[i + 1] = b, out[i + 2] = c, out[i + 3] = d;
    }
}

__attribute__((noinline)) static void read_only(floats *out, const floats *in, const floats *unused, size_t n) {
    const words *from = (const words *)(const void *)in;
    words a = {0}, b = {0}, c = {0}, d = {0};
    (void)unused;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        a |= from[i] ^ from[i + 4], b |= from[i + 1] ^ from[i + 5];
        c |= from[i + 2] ^ from[i + 6], d |= from[i + 3] ^ from[i + 7];
    }
    a |= b | c | d;
    memcpy(out, &a, sizeof a);
}

typedef void (*mover)(floats *, const floats *, const floats *, size_t);

/* The best bytes a second of one way to move, over about `budget` seconds. */
static double best_rate(mover move, floats *out, const floats *in, const floats *other, size_t n, double bytes,
                        double budget) {
    double best = 0, end;
    const double start = seconds();
    long passes = 1;
    do {
        const double from = seconds();
        for (long pass = 0; pass < passes; ++pass) {
            move(out, in, other, n);
            __asm__ volatile("" ::: "memory");
        }
        end = seconds();
        const double took = end - from;
        if (took < 3e-5 && passes < 1L << 24) {
            passes *= 2;
        } else if (took > 0 && bytes * (double)passes / took > best) {
            best = bytes * (double)passes / took;
        }
    } while (end - start < budget || best == 0);
    return best;
}

static void bandwidth(size_t bytes, double budget) {
    /* Arrays start at different offsets in a page, so that loads do not wait for stores with the same low address bits.
     */
    const size_t slack = 3 * 4096;
    char *memory = aligned_alloc(4096, (bytes + 4 * slack + 4095) / 4096 * 4096);
    if (!memory) return;
    memset(memory, 1, bytes + 4 * slack);
    const size_t half = bytes / 2 / WIDTH, third = bytes / 3 / WIDTH, whole = bytes / WIDTH;
    floats *all = (floats *)(void *)memory;
    floats *after_half = all + half + 1024 / WIDTH, *after_third = all + third + 1024 / WIDTH;
    double rates[3] = {
        best_rate(copy, after_half, all, all, half, 2.0 * (double)(half / 8 * 8) * WIDTH, budget / 3),
        best_rate(add, after_third + third + 1024 / WIDTH, all, after_third, third,
                  3.0 * (double)(third / 4 * 4) * WIDTH, budget / 3),
        best_rate(read_only, all + whole + 1, all, all, whole, (double)(whole / 8 * 8) * WIDTH, budget / 3),
    };
    double best = 0;
    for (int i = 0; i < 3; ++i) best = rates[i] > best ? rates[i] : best;
    printf("move %zu %.6e\n", bytes, best);
    free(memory);
}

static double multiply_add(double budget) {
    volatile float factor = 0.999999f, summand = 1e-6f;
    const float f = factor, s = summand;
    floats by, plus, chain[CHAINS];
    for (size_t lane = 0; lane < WIDTH / sizeof(float); ++lane) by[lane] = f, plus[lane] = s;
    for (int i = 0; i < CHAINS; ++i) chain[i] = plus * (float)i;
    double best = 0, end;
    const double start = seconds();
    do {
        const int rounds = 4096;
        const double from = seconds();
        for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
            for (int i = 0; i < CHAINS; ++i) chain[i] = chain[i] * by + plus;
        }
        end = seconds();
        const double done = 2.0 * rounds * CHAINS * (WIDTH / sizeof(float));
        if (end > from && done / (end - from) > best) best = done / (end - from);
    } while (end - start < budget);
    for (int i = 0; i < CHAINS; ++i) sink = chain[i][0];
    return best;
}

int main(int count, char **sizes) {
    multiply_add(5e-3);
    printf("fma %.6e\n", multiply_add(1e-2));
    for (int i = 1; i < count; ++i) bandwidth((size_t)strtoull(sizes[i], 0, 10), 1.8e-2);
    return 0;
}
