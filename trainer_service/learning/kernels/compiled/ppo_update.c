/* PPO's update of MLP policies: vectors in, bodies of Linear and Swish, perhaps LSTMs, Gaussian and categorical
 * heads. Of its parts sac_step.h makes a gradient step of soft actor-critic.
 *
 * It is what PPO._step does with torch, many minibatches per call: gather the rows, forward, the gradient of the loss in
 * closed form (ops/ppo_loss.py has the equations), backward, clip, Adam. Always in the same order, so that equal input
 * gives equal bits. A second thread may do the critic's half, which shares no sum with the actor's, or some rows' values:
 * the bits stay.
 *
 * Compiled once for each instruction set, with SUFFIX, the end of the exported names; LANES, the floats in a vector
 * register; TILE_ROWS and TILE_COLUMNS, the rows, and the vectors side by side, of the part of a product that registers
 * hold. And once with none of these, for the functions that say what this is and what the processor has.
 *
 * How numbers lie in memory. A minibatch is worked off in blocks of at most BLOCK rows, or with memory as one block, a
 * block in panels of PANEL rows. What a layer puts out for a panel is a matrix [features][PANEL]: neighbours in memory
 * are the same feature of different rows. A vector register then holds one feature of LANES rows, so that Swish, softmax
 * and the loss are plain arithmetic without a word on rows, and weights are read as they lie in torch,
 * [outputs][inputs]. Only the gradient by weights, a sum over rows, wants one of its factors the other way round.
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
#include "vectors.h"
#include "network.h"
#include "lstm.h"

enum { BLOCK = 128 };
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
/* The observations of `count` rows, those of `order` or from `first` on; whole panels are filled up with any. */
static void gather_observations(Block *block, const float *observations, const int64_t *order, int64_t first,
                                int64_t count) {
    int64_t inputs = block->network->actor[0].inputs, width = padded(inputs);
    block->panels = padded(count) / PANEL;
    for (int64_t r = 0; r < block->panels * PANEL; r++) {
        int64_t row = order ? order[first + r % count] : first + r % count;
        memcpy(block->input_rows + r * width, observations + row * inputs, (size_t)inputs * sizeof(float));
    }
    to_panels(block, inputs, block->input_rows, block->input);
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

/* The policy's loss of LANES rows, those from column `at` of a panel on; gradients by the heads' outputs go where these
 * outputs were. rows: of the minibatch, of which the loss is the mean. */
static void policy_loss(const Block *block, const Rates *rates, int64_t rows, int64_t panel, int64_t at,
                        Vector *losses) {
    const Network *network = block->network;
    int64_t numbers = network->heads[MEAN].outputs, choices = network->heads[LOGITS].outputs;
    const float *log_sigma = block->theta + network->log_sigma;
#define PART(field, features) (block->field + panel * (features) * PANEL + at)
    float *mean = PART(heads[MEAN], numbers), *logits = PART(heads[LOGITS], choices);
    float *chances = PART(chances, choices);
    const float *actions = PART(actions, numbers);
    const int32_t *allowed = PART(allowed, choices), *chosen = PART(chosen, network->branches);
    Vector live = load(PART(live, 1)), advantage = load(PART(advantage, 1)), share = live * (float)(1.0 / (double)rows);
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
    Vector grad_log_prob = where(unclipped <= clipped, unclipped, (Vector){0}); /* ∂L/∂ ln π = -ρ A / B, or 0 */
    grad_log_prob = where(live != 0.0f, grad_log_prob * (float)(-1.0 / (double)rows), (Vector){0});
    for (int64_t c = 0; c < numbers; c++) {
        Vector z = load(mean + c * PANEL);
        block->gradient[network->log_sigma + c] += total(grad_log_prob * (z * z - 1.0f));
        store(mean + c * PANEL, grad_log_prob * z * exponential(all(-log_sigma[c])));
    }
    for (int64_t b = 0, first = 0; b < network->branches; first += network->choices[b++])
        for (int64_t k = first; k < first + network->choices[b]; k++) {
            Vector is_chosen = where(*(const AnywhereI *)(chosen + b * PANEL) == (int32_t)k, all(1), (Vector){0});
            store(logits + k * PANEL, load(logits + k * PANEL) + grad_log_prob * (is_chosen - load(chances + k * PANEL)));
        }
}

/* The same of the values' loss. */
static void value_loss(const Block *block, const Rates *rates, int64_t rows, int64_t panel, int64_t at,
                       Vector *losses) {
    int64_t signals = block->network->heads[VALUE].outputs;
    float *value = PART(heads[VALUE], signals);
    const float *old_value = PART(old_value, signals), *returns = PART(returns, signals);
    Vector live = load(PART(live, 1));
    const float value_scale = (float)(2.0 * rates->value_coefficient / ((double)rows * (double)signals));
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

/* Features that the heads of the actor or of the critic sit on: of the body, or what an LSTM makes of these. */
static const float *trunk(const Block *block, const Layer *layers, int which) {
    const float *features = body(block, layers, which);
    return block->network->lstms ? lstm(block, which, features) : features;
}

/* From the gradient by these, in grad_layer, to those by all parameters below. */
static void trunk_backward(Block *block, const Layer *layers, int which) {
    int64_t below = 0, columns = block->panels * PANEL;
    for (int64_t l = 0; l + 1 < block->network->depth; l++) below += layers[l].outputs * columns;
    if (block->network->lstms) lstm_backward(block, which, block->features[which] + below);
    body_backward(block, layers, which);
}

/* One gradient of one minibatch, and its loss. */
typedef struct {
    const Rows *data;
    const Rates *rates;
    const int64_t *order; /* the minibatch's rows */
    int64_t rows;
} Minibatch;

/* Adds the gradient of a minibatch's loss by `count` of its rows, those from `start` on; by the parameters of the
 * trunks from `which` to `last`, 0 for the actor's and 1 for the critic's, and of the heads on these. */
static void block_gradient(Block *block, const Minibatch *batch, int which, int last, int64_t start, int64_t count,
                           Vector *losses) {
    const Network *network = block->network;
    gather_observations(block, batch->data->observations, batch->order + start, 0, count);
    gather_targets(block, batch->data, batch->order + start, count);
    for (; which <= last; which++) {
        const Layer *layers = which ? network->critic : network->actor;
        int head = which ? VALUE : MEAN, last_head = which || !network->critic ? VALUE : LOGITS;
        const float *features = trunk(block, layers, which);
        for (int h = head; h <= last_head; h++) linear(block, &network->heads[h], features, block->heads[h]);
        for (int64_t p = 0; p < block->panels; p++)
            for (int64_t at = 0; at < PANEL; at += LANES) {
                if (head == MEAN) policy_loss(block, batch->rates, batch->rows, p, at, losses);
                if (last_head == VALUE) value_loss(block, batch->rates, batch->rows, p, at, losses);
            }
        heads_backward(block, head, last_head, features);
        trunk_backward(block, layers, which);
    }
}

/* The same by all rows. */
static void trunks_gradient(Block *block, const Minibatch *batch, int which, int last, Vector *losses) {
    for (int64_t start = 0; start < batch->rows; start += block->most_rows)
        block_gradient(block, batch, which, last, start, least(block->most_rows, batch->rows - start), losses);
}

/* A second thread for a part of the work. Whoever comes first takes what is offered, so that nobody waits for a thread
 * that has no core; and where one lost its core in between, for longer than all the actor's half of a gradient took, it
 * is over. */
typedef struct Helper {
    int state;
    Block block;
    void (*work)(struct Helper *helper);
    void *job;     /* what the work is on */
    float squares; /* the critic's part of the loss */
} Helper;
enum { DONE, OFFERED, TAKEN, OVER };

/* Does what is offered, if nobody took it before. */
static int take(Helper *helper) {
    int offered = OFFERED;
    if (!__atomic_compare_exchange_n(&helper->state, &offered, TAKEN, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 0;
    helper->work(helper);
    __atomic_store_n(&helper->state, DONE, __ATOMIC_RELEASE);
    return 1;
}

static void offer(Helper *helper, void (*work)(Helper *), void *job) {
    helper->work = work;
    helper->job = job;
    __atomic_store_n(&helper->state, OFFERED, __ATOMIC_RELEASE);
}

/* Returns when what was offered is done. */
static void finish(Helper *helper) {
    if (!take(helper))
        while (__atomic_load_n(&helper->state, __ATOMIC_ACQUIRE) != DONE) sched_yield();
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *help(void *argument) {
    Helper *helper = argument;
    while (__atomic_load_n(&helper->state, __ATOMIC_ACQUIRE) != OVER)
        if (!take(helper)) sched_yield();
    free(helper->block.memory);
    free(helper);
    return NULL;
}

/* A thread with a block like that one, until its state is OVER: then it goes by itself. NULL where there is none. */
static Helper *helper_for(const Block *block) {
    pthread_t thread;
    Helper *helper = calloc(1, sizeof(Helper));
    if (!helper) return NULL;
    if (make_block(&helper->block, block->network, NULL, block->theta, block->gradient, block->most_rows)) {
        if (!pthread_create(&thread, NULL, help, helper)) {
            pthread_detach(thread);
            return helper;
        }
        free(helper->block.memory);
    }
    free(helper);
    return NULL;
}

static void dismiss(Helper **helper) {
    if (*helper) __atomic_store_n(&(*helper)->state, OVER, __ATOMIC_RELEASE);
    *helper = NULL;
}

static void critic_gradient(Helper *helper) {
    Vector losses[5] = {{0}, {0}, {0}, {0}, {0}};
    trunks_gradient(&helper->block, helper->job, 1, 1, losses);
    helper->squares = total(losses[SQUARES]);
}

/* The gradient of a minibatch; adds the parts of its loss to `sums`. second: a thread; NULL there where there is
 * none, or none any more. */
static void minibatch_gradient(Block *block, Helper **second, Minibatch *batch, double *sums) {
    const Network *network = block->network;
    Vector losses[5] = {{0}, {0}, {0}, {0}, {0}};
    int64_t numbers = network->heads[MEAN].outputs;
    double share = 1 / (double)batch->rows, signals = (double)network->heads[VALUE].outputs;
    memset(block->gradient, 0, (size_t)network->parameters * sizeof(float));
    for (int64_t c = 0; c < numbers; c++) { /* the Gaussians' entropy: the mean of ln σ + ½ ln 2πe */
        block->gradient[network->log_sigma + c] = (float)(-batch->rates->entropy_coefficient / (double)numbers);
        sums[ENTROPY] += (block->theta[network->log_sigma + c] + 1.418938533) / (double)numbers;
    }
    Helper *helper = *second;
    if (helper) {
        double begun = seconds(), half;
        offer(helper, critic_gradient, batch);
        trunks_gradient(block, batch, 0, 0, losses);
        half = seconds();
        finish(helper);
        losses[SQUARES][0] = helper->squares;
        if (seconds() - half > 2 * (half - begun)) dismiss(second);
    } else {
        trunks_gradient(block, batch, 0, network->critic != NULL, losses);
    }
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
        float g = gradient[i] + (decay != 0 ? decay * theta[i] : 0); /* a parameter may be infinite */
        float m = beta_1 * mean[i] + rest_1 * g, v = beta_2 * square[i] + rest_2 * (g * g);
        mean[i] = m;
        square[i] = v;
        theta[i] -= size * m / (__builtin_sqrtf(v) + epsilon);
    }
}

/* Minibatch steps on the rows of `order`, or where `mean` is NULL only the gradient of the last one. With `sequences`,
 * not NULL, all rows are one minibatch, in their order of time. The parts of the loss are added up over minibatches.
 * threads: 1, or 2 where there is a critic of its own and no memory. Returns 0 where there was no memory, else 1. */
int EXPORTED(ppo_steps)(const Network *network, const Rows *data, const int64_t *order, int64_t rows,
                        int64_t batch_size, const Sequences *sequences, const Rates *rates, Learned *learned,
                        double *losses, int64_t threads) {
    Block block;
    int64_t most_rows = sequences ? rows : BLOCK;
    if (!make_block(&block, network, sequences, learned->parameters, learned->gradient, most_rows)) return 0;
    Helper *helper = threads > 1 && network->critic && !sequences ? helper_for(&block) : NULL;
    for (int64_t first = 0; first < rows; first += batch_size) {
        Minibatch batch = {data, rates, order + first, least(batch_size, rows - first)};
        minibatch_gradient(&block, &helper, &batch, losses);
        if (!learned->mean) continue;
        double scale = rates->max_norm < 0 ? 1 : clip_scale(network->parameters, learned->gradient, rates->max_norm);
        adam(network->parameters, rates, scale, ++learned->steps, learned);
    }
    dismiss(&helper);
    free(block.memory);
    return 1;
}

typedef struct {
    const float *observations;
    const int64_t *order;
    int64_t rows, next; /* the first row that no thread has taken */
    float *values;
} Values;

/* Takes blocks of rows until there are none. */
static void some_values(Block *block, Values *job) {
    const Network *network = block->network;
    int64_t signals = network->heads[VALUE].outputs, first;
    while ((first = __atomic_fetch_add(&job->next, block->most_rows, __ATOMIC_RELAXED)) < job->rows) {
        int64_t count = least(block->most_rows, job->rows - first);
        gather_observations(block, job->observations, job->order, first, count);
        const float *features = network->critic ? trunk(block, network->critic, 1) : trunk(block, network->actor, 0);
        linear(block, &network->heads[VALUE], features, block->heads[VALUE]);
        for (int64_t r = 0; r < count; r++)
            for (int64_t s = 0; s < signals; s++)
                job->values[(job->order ? job->order[first + r] : first + r) * signals + s] =
                    block->heads[VALUE][(r / PANEL * signals + s) * PANEL + r % PANEL];
    }
}

static void other_values(Helper *helper) { some_values(&helper->block, helper->job); }

/* Values of rows of observations, [rows][signals]: of the first ones, or with `sequences`, not NULL, of all of `order`,
 * which is their order of time. threads: 1, or 2 without memory. Returns as above. */
int EXPORTED(ppo_values)(const Network *network, const float *theta, const float *observations, const int64_t *order,
                         int64_t rows, const Sequences *sequences, float *values, int64_t threads) {
    Block block;
    Values job = {observations, order, rows, 0, values};
    if (!make_block(&block, network, sequences, theta, NULL, sequences ? rows : BLOCK)) return 0;
    Helper *helper = threads > 1 && !sequences ? helper_for(&block) : NULL;
    if (helper) offer(helper, other_values, &job);
    some_values(&block, &job);
    if (helper) finish(helper);
    dismiss(&helper);
    free(block.memory);
    return 1;
}

#include "dense.h"
#include "batch_norm.h"
#include "sac_step.h"
#endif
