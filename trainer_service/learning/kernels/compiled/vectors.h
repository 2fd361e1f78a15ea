/* What the instruction sets have in common: a vector of LANES floats, and products of matrices from tiles of them. */
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#define INTERLEAVE(a, b, which) __builtin_shufflevector(a, b, which)
#else
#define UNROLLED _Pragma("GCC unroll 16")
#define INTERLEAVE(a, b, which) __builtin_shuffle(a, b, (Integers){which})
#endif
enum { PANEL = TILE_COLUMNS * LANES };

/* What of two vectors is interleaved: their first halves, or their second ones. */
#if LANES == 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#elif LANES == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif
typedef float Vector __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t Integers __attribute__((vector_size(4 * LANES), may_alias));
typedef float AnywhereV __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t AnywhereI __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t padded(int64_t n) { return (n + PANEL - 1) / PANEL * PANEL; }
INLINE Vector load(const float *at) { return *(const AnywhereV *)at; }
INLINE void store(float *at, Vector x) { *(AnywhereV *)at = x; }
INLINE Vector all(float x) { return x - (Vector){0}; }
INLINE Vector where(Integers mask, Vector yes, Vector no) {
    return (Vector)(((Integers)yes & mask) | ((Integers)no & ~mask));
}
INLINE Vector larger(Vector a, Vector b) { return where(a > b, a, b); }
INLINE Vector clamped(Vector x, float a, float b) { return where(x < a, all(a), where(x > b, all(b), x)); }
INLINE float total(Vector x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2, and a polynomial for e^r that is fitted to 5e-9. Outside
 * [-87.33, 88.37], where floats end, it is what it is there; NaN stays NaN. */
INLINE Vector bounded_exponential(Vector x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: a sum with it has no place for digits behind the point */
    x = clamped(x, -87.33f, 88.37f);
    Vector shifted = x * 1.44269504f + round;
    Vector n = shifted - round;
    Vector r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts, the first one exact */
    Vector q = r * 0.0013946411199867725f + 0.008369144052267075f;
    q = ((q * r + 0.041666265577077866f) * r + 0.16666516661643982f) * r + 0.5f;
    return (q * (r * r) + r + 1.0f) * (Vector)(((Integers)shifted << 23) + (127 << 23));
}

/* The same, infinite and 0 beyond these ends. */
INLINE Vector exponential(Vector x) {
    return where(x > 88.37f, all(__builtin_inff()), where(x < -87.33f, all(0.0f), bounded_exponential(x)));
}

INLINE Vector sigmoid(Vector x) { return 1.0f / (1.0f + bounded_exponential(-x)); }

/* ln x for a positive x: what the bits say, right to 0.03, and twice Halley's step on e^y = x, which cubes that. */
INLINE Vector logarithm(Vector x) {
    Vector y = (__builtin_convertvector((Integers)x, Vector) * 0x1p-23f - 126.957f) * 0.69314718f;
    for (int i = 0; i < 2; i++) y += 2.0f * (x - exponential(y)) / (x + exponential(y));
    return y;
}

/* C[m][n] = start[m][n] + Σ_k A[m][k] B[k][n] for `rows` m and PANEL n. The sum over k is one over `outer` times
 * `inner`: A is read at a + m*a_row + i*a_inner + o*a_outer, B row after row. */
typedef struct {
    int64_t outer, inner;
    const float *a;
    int64_t a_row, a_inner, a_outer;
    const float *b;
    int64_t b_row;
} Product;

INLINE void tile_of(const int rows, const Product *q, const float *bias, int add, float *c, int64_t c_row) {
    Vector sum[TILE_ROWS][TILE_COLUMNS];
    UNROLLED for (int m = 0; m < rows; m++)
        UNROLLED for (int j = 0; j < TILE_COLUMNS; j++)
            sum[m][j] = add ? load(c + m * c_row + j * LANES) : all(bias ? bias[m] : 0.0f);
    const float *b = q->b;
    const int64_t a_row = q->a_row, a_inner = q->a_inner, b_row = q->b_row;
    for (int64_t o = 0; o < q->outer; o++) {
        const float *a = q->a + o * q->a_outer;
        for (int64_t i = 0; i < q->inner; i++, a += a_inner, b += b_row) {
            Vector column[TILE_COLUMNS];
            UNROLLED for (int j = 0; j < TILE_COLUMNS; j++) column[j] = load(b + j * LANES);
            UNROLLED for (int m = 0; m < rows; m++) {
                float factor = a[m * a_row];
                UNROLLED for (int j = 0; j < TILE_COLUMNS; j++) sum[m][j] += factor * column[j];
            }
        }
    }
    UNROLLED for (int m = 0; m < rows; m++)
        UNROLLED for (int j = 0; j < TILE_COLUMNS; j++) store(c + m * c_row + j * LANES, sum[m][j]);
}

/* The same with the number of rows as a constant, so that all sums have registers. */
static void tile(int64_t rows, const Product *q, const float *bias, int add, float *c, int64_t c_row) {
#define CASE(n) case n: tile_of(n, q, bias, add, c, c_row); break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4)
#if TILE_ROWS > 4
        CASE(5) CASE(6)
#endif
#if TILE_ROWS > 6
        CASE(7) CASE(8)
#endif
    }
}

/* A matrix of at most LANES rows and columns turned round, [rows][from_row] to [columns][to_row]. Each round
 * interleaves the first half of the vectors with the second, which rotates the digits of each number's place. */
INLINE void turn(const float *from, int64_t from_row, int64_t rows, float *to, int64_t to_row, int64_t columns) {
    Vector x[LANES], y[LANES];
    UNROLLED for (int i = 0; i < LANES; i++) x[i] = i < rows ? load(from + i * from_row) : (Vector){0};
    UNROLLED for (int round = 1; round < LANES; round *= 2) {
        UNROLLED for (int i = 0; i < LANES / 2; i++) {
            y[2 * i] = INTERLEAVE(x[i], x[i + LANES / 2], LOW);
            y[2 * i + 1] = INTERLEAVE(x[i], x[i + LANES / 2], HIGH);
        }
        UNROLLED for (int i = 0; i < LANES; i++) x[i] = y[i];
    }
    UNROLLED for (int i = 0; i < LANES; i++) if (i < columns) store(to + i * to_row, x[i]);
}
