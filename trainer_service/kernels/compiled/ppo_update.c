/* PPO's update of the usual network: vectors in, bodies of Linear and Swish, Gaussian and categorical heads.
 *
 * It is what kernels/torch_kernel.py does with torch, many minibatches per call: gather the rows, forward, the gradient
 * of the loss in closed form (ops/ppo_gradient.py has the equations), backward, clip, Adam. One thread, always in the
 * same order, so that equal input gives equal bits.
 *
 * Compiled once for each instruction set, with SUFFIX, the end of the exported names; LANES, the floats in a vector
 * register; TILE_ROWS and TILE_COLUMNS, the rows, and the vectors side by side, of the part of a product that registers
 * hold. And once with none of these, for the functions that say what this is and what the processor has.
 *
 * How numbers lie in memory. A minibatch is worked off in blocks of at most BLOCK rows, a block in panels of PANEL
 * rows. What a layer puts out for a panel is a matrix [features][PANEL]: neighbours in memory are the same feature
 * of different rows. A vector register then holds one feature of LANES rows, so that Swish, softmax and the loss
 * are plain arithmetic without a word on rows, and weights are read as they lie in torch, [outputs][inputs]. Only
 * the gradient by weights, a sum over rows, wants one of its factors the other way round.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef SUFFIX
/* Tells whether this was compiled from the source that lies beside it. */
uint32_t source_digest(void) { return SOURCE_DIGEST; }

/* Bits: 1 NEON, 2 AVX2, 4 AVX-512. */
int instruction_sets(void) {
#if defined(__x86_64__)
#define HAS(what) (__builtin_cpu_supports(what) != 0)
    __builtin_cpu_init();
    int narrow = HAS("avx2") & HAS("fma");
    return 2 * narrow + 4 * (narrow & HAS("avx512f") & HAS("avx512vl") & HAS("avx512dq") & HAS("avx512bw"));
#else
    return 1;
#endif
}
#else
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define EXPORTED(name) JOIN(name, SUFFIX)
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#define INTERLEAVE(a, b, which) __builtin_shufflevector(a, b, which)
#else
#define UNROLLED _Pragma("GCC unroll 16")
#define INTERLEAVE(a, b, which) __builtin_shuffle(a, b, (Integers){which})
#endif
enum { PANEL = TILE_COLUMNS * LANES, BLOCK = 128 };

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

/* What Python hands over: the same fields as in library.py. Places count floats in the vector of parameters. */
typedef struct {
    int64_t weight, bias; /* places of [outputs][inputs] and of [outputs] */
    int64_t inputs, outputs;
} Layer;
typedef struct {
    int64_t parameters;          /* of all layers, in one vector */
    int64_t depth;               /* layers of a body */
    const Layer *actor, *critic; /* [depth] each; critic is NULL where the value head sits on the actor's body */
    Layer heads[3];              /* of means, logits and values; one that is absent has no outputs */
    int64_t log_sigma;           /* place of [numbers] */
    int64_t branches;
    const int64_t *choices;      /* of each branch, [branches]; they sum to K */
} Network;
enum { MEAN, LOGITS, VALUE };
typedef struct { /* S rows; what belongs to a row lies side by side */
    const float *observations, *continuous_actions; /* [S][inputs], [S][numbers] */
    const int64_t *discrete_actions;                /* [S][branches], counted from the start of all K choices */
    const uint8_t *allowed_actions;                 /* [S][K] */
    const float *old_log_prob, *advantage;          /* [S] */
    const float *old_value, *returns;               /* [S][signals] */
} Rows;
typedef struct {
    double clip_epsilon, value_coefficient, entropy_coefficient;
    double max_norm; /* of the gradient; negative for no limit */
    double learning_rate, beta_1, beta_2, epsilon, weight_decay;
    const double *value_clip_range; /* [signals] */
} Rates;
typedef struct {
    float *parameters, *gradient, *mean, *square; /* [parameters] each: θ, its gradient, Adam's m and v */
    int64_t steps;                                /* that Adam has taken */
} Learned;
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
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

/* What a block of rows is worked on with; in panels, but what is called rows, [BLOCK][padded features]. */
typedef struct {
    const Network *network;
    const float *theta;
    float *gradient;
    int64_t panels;                 /* that the block has */
    float *input_rows, *input;
    float *features[2], *slopes[2]; /* of actor and critic: what each layer of the body puts out, one after another, and
                                       Swish's derivative there */
    float *rows, *packed;           /* what a layer puts out, turned round; some columns of its weights */
    float *by_layer, *by_before;    /* gradients by what a layer puts out, and by what the one before it does */
    float *heads[3], *chances;      /* outputs of the heads, then gradients by them; probabilities of choices */
    float *actions, *old_log_prob, *advantage, *old_value, *returns, *live; /* live: 1, or 0 in rows that fill up */
    int32_t *chosen, *allowed;      /* the choice of each branch; all bits where a choice is allowed */
    void *memory;
} Block;

/* Hands out what a block needs from `at` on; returns where that ends. */
static char *lay_out(Block *block, char *at) {
#define TAKE(field, features) \
    block->field = (void *)at, at += ((size_t)(features) * BLOCK * sizeof(float) + 63) / 64 * 64
    const Network *network = block->network;
    int64_t inputs = network->actor[0].inputs, numbers = network->heads[MEAN].outputs, widest = inputs, sum = 0;
    int64_t choices = network->heads[LOGITS].outputs, signals = network->heads[VALUE].outputs;
    for (int64_t l = 0; l < network->depth; l++) {
        sum += network->actor[l].outputs;
        if (network->actor[l].outputs > widest) widest = network->actor[l].outputs;
    }
    TAKE(input_rows, padded(inputs)); TAKE(input, inputs);
    TAKE(features[0], sum); TAKE(slopes[0], sum); TAKE(features[1], sum); TAKE(slopes[1], sum);
    TAKE(rows, padded(widest)); TAKE(by_layer, widest); TAKE(by_before, widest);
    TAKE(packed, widest + numbers + choices + signals);
    TAKE(heads[MEAN], numbers); TAKE(heads[LOGITS], choices); TAKE(heads[VALUE], signals); TAKE(chances, choices);
    TAKE(actions, numbers); TAKE(chosen, network->branches); TAKE(allowed, choices);
    TAKE(old_log_prob, 1); TAKE(advantage, 1); TAKE(live, 1); TAKE(old_value, signals); TAKE(returns, signals);
    return at;
}

/* Returns 0 where there is no memory. */
static int make_block(Block *block, const Network *network, const float *theta, float *gradient) {
    *block = (Block){.network = network, .theta = theta, .gradient = gradient};
    size_t bytes = (size_t)(lay_out(block, (char *)64) - (char *)64);
    block->memory = calloc(1, bytes + 64);
    if (!block->memory) return 0;
    lay_out(block, (char *)(((uintptr_t)block->memory + 63) / 64 * 64));
    return 1;
}

/* y = W x + b */
static void linear(const Block *block, const Layer *layer, const float *x, float *y) {
    int64_t inputs = layer->inputs, outputs = layer->outputs;
    const float *weight = block->theta + layer->weight, *bias = block->theta + layer->bias;
    for (int64_t m = 0; m < outputs; m += TILE_ROWS)
        for (int64_t p = 0; p < block->panels; p++) {
            Product q = {1, inputs, weight + m * inputs, inputs, 1, 0, x + p * inputs * PANEL, PANEL};
            tile(least(TILE_ROWS, outputs - m), &q, bias + m, 0, y + (p * outputs + m) * PANEL, PANEL);
        }
}

/* ∂L/∂x = Wᵀ ∂L/∂y; `add` to what is there. */
static void linear_by_input(const Block *block, const Layer *layer, const float *by_y, int add, float *by_x) {
    int64_t inputs = layer->inputs, outputs = layer->outputs;
    for (int64_t m = 0; m < inputs; m += TILE_ROWS) {
        int64_t rows = least(TILE_ROWS, inputs - m);
        const float *columns = block->theta + layer->weight + m;
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t i = 0; i < rows; i++) block->packed[k * TILE_ROWS + i] = columns[k * inputs + i];
        for (int64_t p = 0; p < block->panels; p++) {
            Product q = {1, outputs, block->packed, 1, TILE_ROWS, 0, by_y + p * outputs * PANEL, PANEL};
            tile(rows, &q, NULL, add, by_x + (p * inputs + m) * PANEL, PANEL);
        }
    }
}

/* ∂L/∂W += ∂L/∂y xᵀ and ∂L/∂b += Σ ∂L/∂y, sums over all rows of the block. x: as rows. */
static void linear_by_parameters(const Block *block, const Layer *layer, const float *by_y, const float *x) {
    int64_t inputs = layer->inputs, outputs = layer->outputs;
    float partial[TILE_ROWS * PANEL];
    for (int64_t m = 0; m < outputs; m += TILE_ROWS) {
        int64_t rows = least(TILE_ROWS, outputs - m);
        for (int64_t n = 0; n < inputs; n += PANEL) {
            Product q = {block->panels, PANEL, by_y + m * PANEL, PANEL, 1, outputs * PANEL, x + n, padded(inputs)};
            float *c = block->gradient + layer->weight + m * inputs + n;
            if (n + PANEL <= inputs) {
                tile(rows, &q, NULL, 1, c, inputs);
                continue;
            }
            tile(rows, &q, NULL, 0, partial, PANEL);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < inputs - n; j++) c[i * inputs + j] += partial[i * PANEL + j];
        }
    }
    for (int64_t m = 0; m < outputs; m++) {
        Vector sum = {0};
        for (int64_t p = 0; p < block->panels; p++)
            for (int64_t j = 0; j < PANEL; j += LANES) sum += load(by_y + (p * outputs + m) * PANEL + j);
        block->gradient[layer->bias + m] += total(sum);
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

static void to_rows(const Block *block, int64_t features, const float *x, float *rows) {
    int64_t width = padded(features);
    for (int64_t r = 0; r < block->panels * PANEL; r += LANES)
        for (int64_t f = 0; f < features; f += LANES)
            turn(x + (r / PANEL * features + f) * PANEL + r % PANEL, PANEL, features - f, rows + r * width + f, width,
                 LANES);
}

/* The observations of `count` rows, those of `order` or from `first` on; whole panels are filled up with any. */
static void gather_observations(Block *block, const float *observations, const int64_t *order, int64_t first,
                                int64_t count) {
    int64_t inputs = block->network->actor[0].inputs, width = padded(inputs);
    block->panels = padded(count) / PANEL;
    for (int64_t r = 0; r < block->panels * PANEL; r++) {
        int64_t row = order ? order[first + r % count] : first + r % count;
        memcpy(block->input_rows + r * width, observations + row * inputs, (size_t)inputs * sizeof(float));
        if (r % LANES == LANES - 1)
            for (int64_t f = 0; f < inputs; f += LANES)
                turn(block->input_rows + (r - LANES + 1) * width + f, width, LANES,
                     block->input + (r / PANEL * inputs + f) * PANEL + r % PANEL - LANES + 1, PANEL, inputs - f);
    }
}

/* A body's layers, each followed by Swish, x σ(x), whose derivative is σ + x σ (1 - σ). Returns what the last one
 * puts out. which: 0 for the actor's body, 1 for the critic's. */
static const float *body(const Block *block, const Layer *layers, int which) {
    const float *x = block->input;
    float *features = block->features[which], *slopes = block->slopes[which];
    for (int64_t l = 0; l < block->network->depth; l++) {
        int64_t count = layers[l].outputs * block->panels * PANEL;
        linear(block, &layers[l], x, features);
        for (int64_t i = 0; i < count; i += LANES) {
            Vector before = load(features + i), sigmoid = 1.0f / (1.0f + bounded_exponential(-before));
            Vector after = before * sigmoid;
            store(features + i, after);
            store(slopes + i, sigmoid + after * (1.0f - sigmoid));
        }
        x = features;
        features += count;
        slopes += count;
    }
    return x;
}

/* What the loss needs of `count` rows beside the network's outputs. */
static void gather_targets(const Block *block, const Rows *data, const int64_t *order, int64_t count) {
#define COPY(to, from, width) \
    for (int64_t i = 0, n = (width); i < n; i++) block->to[(r / PANEL * n + i) * PANEL + r % PANEL] = from[row * n + i]
    const Network *network = block->network;
    int64_t choices = network->heads[LOGITS].outputs, signals = network->heads[VALUE].outputs;
    for (int64_t r = 0; r < block->panels * PANEL; r++) {
        int64_t row = order[r % count];
        block->live[r] = r < count;
        COPY(old_log_prob, data->old_log_prob, 1);
        COPY(advantage, data->advantage, 1);
        COPY(actions, data->continuous_actions, network->heads[MEAN].outputs);
        COPY(chosen, (int32_t)data->discrete_actions, network->branches);
        COPY(allowed, -(int32_t)data->allowed_actions, choices);
        COPY(old_value, data->old_value, signals);
        COPY(returns, data->returns, signals);
    }
}

/* ln π of a branch's choices in place of its logits, their probabilities to `chances`; returns ln π of the chosen one.
 * Pointers: to the branch's first choice, [choices][PANEL]. first: its number among all choices. */
INLINE Vector branch(int64_t choices, int64_t first, float *logits, float *chances, const int32_t *allowed,
                     Integers chosen, Vector *entropy) {
    Vector highest = all(-__builtin_inff()), sum = {0}, log_prob = {0};
    for (int64_t k = 0; k < choices; k++) {
        /* Finite, so that a row without any allowed choice still has a distribution and no NaN. */
        Vector logit = where(*(const AnywhereI *)(allowed + k * PANEL), load(logits + k * PANEL), all(-1e10f));
        store(logits + k * PANEL, logit);
        highest = larger(highest, logit);
    }
    for (int64_t k = 0; k < choices; k++) {
        Vector relative = load(logits + k * PANEL) - highest, e = exponential(relative);
        store(logits + k * PANEL, relative);
        store(chances + k * PANEL, e);
        sum += e;
    }
    Vector log_sum = logarithm(sum);
    *entropy = (Vector){0};
    for (int64_t k = 0; k < choices; k++) {
        Vector log_choice = load(logits + k * PANEL) - log_sum, chance = load(chances + k * PANEL) / sum;
        store(logits + k * PANEL, log_choice);
        store(chances + k * PANEL, chance);
        *entropy -= chance * log_choice;
        log_prob += where(chosen == (int32_t)(first + k), log_choice, (Vector){0});
    }
    return log_prob;
}

enum { POLICY, SQUARES, ENTROPY, CLIPPED, DIVERGENCE }; /* the parts of the loss, as in PPOGradient.losses */

/* The loss of LANES rows, those from column `at` of a panel on; gradients by the heads' outputs go where these outputs
 * were. rows: of the minibatch, of which the loss is the mean. */
static void loss_of_rows(const Block *block, const Rates *rates, int64_t rows, int64_t panel, int64_t at,
                         Vector *losses) {
    const Network *network = block->network;
    int64_t numbers = network->heads[MEAN].outputs;
    int64_t choices = network->heads[LOGITS].outputs, signals = network->heads[VALUE].outputs;
    const float *log_sigma = block->theta + network->log_sigma;
#define PART(field, features) (block->field + panel * (features) * PANEL + at)
    float *mean = PART(heads[MEAN], numbers), *logits = PART(heads[LOGITS], choices);
    float *value = PART(heads[VALUE], signals), *chances = PART(chances, choices);
    const float *actions = PART(actions, numbers), *old_value = PART(old_value, signals);
    const float *returns = PART(returns, signals);
    const int32_t *allowed = PART(allowed, choices), *chosen = PART(chosen, network->branches);
    Vector live = load(PART(live, 1)), advantage = load(PART(advantage, 1)), share = live * (float)(1.0 / (double)rows);
    const float value_scale = (float)(2.0 * rates->value_coefficient / ((double)rows * (double)signals));
    Vector log_prob = {0}, entropy;
    for (int64_t c = 0; c < numbers; c++) {
        Vector z = (load(actions + c * PANEL) - load(mean + c * PANEL)) * exponential(all(-log_sigma[c]));
        store(mean + c * PANEL, z);
        log_prob -= 0.5f * (z * z) + (log_sigma[c] + 0.918938533f); /* ½ ln 2π */
    }
    for (int64_t b = 0, first = 0; b < network->branches; first += network->choices[b++]) {
        Integers choice = *(const AnywhereI *)(chosen + b * PANEL);
        log_prob += branch(network->choices[b], first, logits + first * PANEL, chances + first * PANEL,
                           allowed + first * PANEL, choice, &entropy);
        losses[ENTROPY] += live * entropy;
        /* −β ∂H/∂logit = β p (ln p + H) */
        for (int64_t k = first; k < first + network->choices[b]; k++) {
            Vector spread = load(chances + k * PANEL) * (load(logits + k * PANEL) + entropy);
            store(logits + k * PANEL, share * (float)rates->entropy_coefficient * spread);
        }
    }
    Vector log_ratio = log_prob - load(PART(old_log_prob, 1));
    Vector ratio = exponential(log_ratio);
    Vector bounded = clamped(ratio, (float)(1.0 - rates->clip_epsilon), (float)(1.0 + rates->clip_epsilon));
    Vector unclipped = ratio * advantage, clipped = bounded * advantage;
    losses[POLICY] -= where(live != 0.0f, where(unclipped <= clipped, unclipped, clipped), (Vector){0});
    losses[CLIPPED] += where(ratio != bounded, live, (Vector){0});
    losses[DIVERGENCE] += where(live != 0.0f, ratio - 1.0f - log_ratio, (Vector){0});
    Vector by_log_prob = where(unclipped <= clipped, unclipped, (Vector){0}); /* ∂L/∂ ln π = -ρ A / B, or 0 */
    by_log_prob = where(live != 0.0f, by_log_prob * (float)(-1.0 / (double)rows), (Vector){0});
    for (int64_t c = 0; c < numbers; c++) {
        Vector z = load(mean + c * PANEL);
        block->gradient[network->log_sigma + c] += total(by_log_prob * (z * z - 1.0f));
        store(mean + c * PANEL, by_log_prob * z * exponential(all(-log_sigma[c])));
    }
    for (int64_t b = 0, first = 0; b < network->branches; first += network->choices[b++])
        for (int64_t k = first; k < first + network->choices[b]; k++) {
            Vector is_chosen = where(*(const AnywhereI *)(chosen + b * PANEL) == (int32_t)k, all(1), (Vector){0});
            store(logits + k * PANEL, load(logits + k * PANEL) + by_log_prob * (is_chosen - load(chances + k * PANEL)));
        }
    for (int64_t s = 0; s < signals; s++) {
        float range = (float)rates->value_clip_range[s];
        Vector now = load(value + s * PANEL), old = load(old_value + s * PANEL), target = load(returns + s * PANEL);
        Vector error = now - target, moved = now - old, kept = clamped(moved, -range, range);
        Vector clipped_error = old + kept - target;
        Vector squared = error * error, clipped_squared = clipped_error * clipped_error;
        losses[SQUARES] += where(live != 0.0f, larger(squared, clipped_squared), (Vector){0});
        /* Outside the range the larger term is flat in V. */
        Integers flat = (clipped_squared > squared) & (kept != moved);
        store(value + s * PANEL, where(~flat & (live != 0.0f), error * value_scale, (Vector){0}));
    }
}

/* From the gradient by what a body's last layer puts out, in by_layer, to those by its parameters. */
static void body_backward(Block *block, const Layer *layers, int which) {
    int64_t place = 0, columns = block->panels * PANEL;
    for (int64_t l = 0; l < block->network->depth; l++) place += layers[l].outputs * columns;
    for (int64_t l = block->network->depth - 1; l >= 0; l--) {
        int64_t count = layers[l].outputs * columns;
        place -= count;
        for (int64_t i = 0; i < count; i += LANES)
            store(block->by_layer + i, load(block->by_layer + i) * load(block->slopes[which] + place + i));
        if (l == 0) {
            linear_by_parameters(block, &layers[l], block->by_layer, block->input_rows);
            return;
        }
        to_rows(block, layers[l].inputs, block->features[which] + place - layers[l].inputs * columns, block->rows);
        linear_by_parameters(block, &layers[l], block->by_layer, block->rows);
        linear_by_input(block, &layers[l], block->by_layer, 0, block->by_before);
        float *swapped = block->by_layer;
        block->by_layer = block->by_before;
        block->by_before = swapped;
    }
}

/* Back through the heads from `head` to `last`, which sit on the same features, to by_layer. */
static void heads_backward(const Block *block, int head, int last, const float *features) {
    int add = 0;
    to_rows(block, block->network->heads[VALUE].inputs, features, block->rows);
    for (; head <= last; head++) {
        const Layer *layer = &block->network->heads[head];
        linear_by_parameters(block, layer, block->heads[head], block->rows);
        linear_by_input(block, layer, block->heads[head], add, block->by_layer);
        add |= layer->outputs > 0;
    }
}

/* Adds the gradient of a minibatch's loss by `count` of its rows, those of `order`. */
static void block_gradient(Block *block, const Rows *data, const Rates *rates, const int64_t *order, int64_t count,
                           int64_t rows, Vector *losses) {
    const Network *network = block->network;
    gather_observations(block, data->observations, order, 0, count);
    gather_targets(block, data, order, count);
    const float *features = body(block, network->actor, 0);
    const float *critic_features = network->critic ? body(block, network->critic, 1) : features;
    for (int h = MEAN; h <= VALUE; h++)
        linear(block, &network->heads[h], h == VALUE ? critic_features : features, block->heads[h]);
    for (int64_t p = 0; p < block->panels; p++)
        for (int64_t at = 0; at < PANEL; at += LANES) loss_of_rows(block, rates, rows, p, at, losses);
    heads_backward(block, MEAN, network->critic ? LOGITS : VALUE, features);
    body_backward(block, network->actor, 0);
    if (network->critic) {
        heads_backward(block, VALUE, VALUE, critic_features);
        body_backward(block, network->critic, 1);
    }
}

/* The gradient of a minibatch, the rows of `order`; adds the parts of its loss to `sums`. */
static void minibatch_gradient(Block *block, const Rows *data, const Rates *rates, const int64_t *order, int64_t rows,
                               double *sums) {
    const Network *network = block->network;
    Vector losses[5] = {{0}, {0}, {0}, {0}, {0}};
    int64_t numbers = network->heads[MEAN].outputs;
    double share = 1 / (double)rows, signals = (double)network->heads[VALUE].outputs;
    memset(block->gradient, 0, (size_t)network->parameters * sizeof(float));
    for (int64_t c = 0; c < numbers; c++) { /* the Gaussians' entropy: the mean of ln σ + ½ ln 2πe */
        block->gradient[network->log_sigma + c] = (float)(-rates->entropy_coefficient / (double)numbers);
        sums[ENTROPY] += (block->theta[network->log_sigma + c] + 1.418938533) / (double)numbers;
    }
    for (int64_t start = 0; start < rows; start += BLOCK)
        block_gradient(block, data, rates, order + start, least(BLOCK, rows - start), rows, losses);
    for (int i = 0; i < 5; i++) sums[i] += total(losses[i]) * (i == SQUARES ? share / signals : share);
}

/* What the gradient is to be multiplied with, so that it is no longer than max_norm; see networks/flat.py. */
static double clip_scale(int64_t count, const float *gradient, double max_norm) {
    double squares = 0;
    Vector sum = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        sum += load(gradient + i) * load(gradient + i);
        if (i % 4096 == 0) squares += total(sum), sum = (Vector){0};
    }
    for (squares += total(sum); i < count; i++) squares += gradient[i] * gradient[i];
    double scale = max_norm / (__builtin_sqrt(squares) + 1e-6);
    return scale > 1 ? 1 : scale;
}

/* g <- scale g + λ θ,  m <- β₁ m + (1-β₁) g,  v <- β₂ v + (1-β₂) g²,  θ <- θ - α m̂ / (√v̂ + ε)
 * with m̂ = m / (1-β₁ᵗ) and v̂ = v / (1-β₂ᵗ), whose constants are taken out of the loop. */
static void adam(int64_t count, const Rates *rates, double scale, int64_t step, const Learned *learned) {
    float *restrict theta = learned->parameters, *restrict gradient = learned->gradient;
    float *restrict mean = learned->mean, *restrict square = learned->square;
    const float beta_1 = (float)rates->beta_1, beta_2 = (float)rates->beta_2, decay = (float)rates->weight_decay;
    const float rest_1 = (float)(1 - rates->beta_1), rest_2 = (float)(1 - rates->beta_2), factor = (float)scale;
    const double root = __builtin_sqrt(1 - __builtin_powi(rates->beta_2, (int)step));
    const float size = (float)(rates->learning_rate * root / (1 - __builtin_powi(rates->beta_1, (int)step)));
    const float epsilon = (float)(rates->epsilon * root);
    for (int64_t i = 0; i < count; i++) {
        gradient[i] *= factor;
        float g = gradient[i] + decay * theta[i];
        float m = beta_1 * mean[i] + rest_1 * g, v = beta_2 * square[i] + rest_2 * (g * g);
        mean[i] = m;
        square[i] = v;
        theta[i] -= size * m / (__builtin_sqrtf(v) + epsilon);
    }
}

/* Minibatch steps on the rows of `order` from `first` to `last`, or where `mean` is NULL only the gradient of the last
 * one. The parts of the loss are added up over minibatches. Returns 0 where there was no memory, else 1. */
int EXPORTED(ppo_steps)(const Network *network, const Rows *data, const int64_t *order, int64_t first, int64_t last,
                        int64_t batch_size, const Rates *rates, Learned *learned, double *losses) {
    Block block;
    if (!make_block(&block, network, learned->parameters, learned->gradient)) return 0;
    for (; first < last; first += batch_size) {
        minibatch_gradient(&block, data, rates, order + first, least(batch_size, last - first), losses);
        if (!learned->mean) continue;
        double scale = rates->max_norm < 0 ? 1 : clip_scale(network->parameters, learned->gradient, rates->max_norm);
        adam(network->parameters, rates, scale, ++learned->steps, learned);
    }
    free(block.memory);
    return 1;
}

/* Values of rows of observations, [rows][signals]. Returns as above. */
int EXPORTED(ppo_values)(const Network *network, const float *theta, const float *observations, int64_t rows,
                         float *values) {
    Block block;
    if (!make_block(&block, network, theta, NULL)) return 0;
    int64_t signals = network->heads[VALUE].outputs;
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t count = least(BLOCK, rows - first);
        gather_observations(&block, observations, NULL, first, count);
        const float *features = body(&block, network->critic ? network->critic : network->actor, 0);
        linear(&block, &network->heads[VALUE], features, block.heads[VALUE]);
        for (int64_t r = 0; r < count; r++)
            for (int64_t s = 0; s < signals; s++)
                values[(first + r) * signals + s] = block.heads[VALUE][(r / PANEL * signals + s) * PANEL + r % PANEL];
    }
    free(block.memory);
    return 1;
}

#endif
