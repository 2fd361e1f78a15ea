/* A gradient step of soft actor-critic: what SAC._step does with torch, in its order. Critics move towards the soft
 * targets, then policy and temperatures may learn, then the critics' targets follow. Critics with batch normalization
 * have no targets. The gradients are in closed form; ops/soft_actor_critic.py has the equations. */
typedef struct {
    Stack policy, critics;            /* the policy's heads: means and ln σ of continuous actions, logits of choices, if
                                         there are any; critics have one head, of each signal and choice */
    Learned policy_learned, critics_learned, alpha_learned;
    const Rates *rates;               /* of the three, in this order */
    float *target_parameters;         /* of the target critics; NULL with norms */
    const Norm *norms;                /* before each layer of the critics, and the last one; NULL for none */
    int64_t policy_parameters, critic_parameters;
    double tau;
    const float *discounts, *ends;    /* [signals]; ends: 1 where a signal's value is 0 after the end of an episode */
    int64_t sensors, actions, signals;
    int64_t branches, choices;        /* the discrete ones, and all their choices */
    const int64_t *sizes;             /* choices of each branch, [branches] */
} Soft;
typedef struct { /* a minibatch; what belongs to a row lies side by side */
    int64_t rows;
    Columns *seen, *next;         /* [sensors + 1]: observations, then the action; that of `next` is set here */
    const float *rewards;         /* [rows][signals] */
    const uint8_t *terminated;    /* [rows] */
    const float *weights;         /* [rows], or NULL where all are equal */
    const float *next_noise, *noise; /* of actions, [rows][actions] */
    const int64_t *chosen;        /* [rows][branches], counted from the start of all choices */
    const uint8_t *allowed, *next_allowed; /* [rows][choices]; NULL where all are allowed */
    int64_t improves;             /* whether policy and temperatures are to learn */
} Transitions;

enum { CRITICS = 2 };

/* What the policy puts out for a minibatch, and the actions drawn from that. [rows][actions], and log_prob [rows]. */
typedef struct {
    float *mean, *log_sigma, *action, *log_prob;
    float *part; /* of each action's ln π */
    float *logits, *chances; /* ln π in place of logits, and π, [rows][choices] */
    float *entropies, *sums; /* of each branch, [rows][branches] */
} Draws;

/* Values of a signal: of each choice, or one. */
static int64_t width_of(const Soft *soft) { return most(soft->choices, 1); }

/* The places of what the policy's heads put out. */
static void heads_of(const Soft *soft, const Draws *draws, float **heads) {
    if (soft->actions) *heads++ = draws->mean, *heads++ = draws->log_sigma;
    if (soft->choices) *heads = draws->logits;
}

/* NaN stays, whichever it is. */
static float smaller(float a, float b) { return a > b || b != b ? b : a; }

static float *take_floats(float **at, int64_t count) {
    float *taken = *at;
    *at += (count + PANEL - 1) / PANEL * PANEL;
    return taken;
}

/* ln π of each choice in place of its logit, π, and each branch's entropy. What is not allowed has a π of 0. */
static void choose(const Soft *soft, int64_t rows, const uint8_t *allowed, const Draws *to) {
    const int64_t branches = soft->branches, choices = soft->choices;
    for (int64_t r = 0, i = 0; r < rows; r++)
        for (int64_t b = 0; b < branches; i += soft->sizes[b++]) {
            float highest = -__builtin_inff();
            for (int64_t k = i; k < i + soft->sizes[b]; k++) {
                if (allowed && !allowed[k]) to->logits[k] = -1e10f; /* finite, as in network.h */
                if (to->logits[k] > highest) highest = to->logits[k];
            }
            for (int64_t k = i; k < i + soft->sizes[b]; k++) to->logits[k] -= highest;
        }
    for (int64_t i = 0; i < rows * choices; i += LANES) store(to->chances + i, exponential(load(to->logits + i)));
    for (int64_t r = 0, i = 0; r < rows; r++)
        for (int64_t b = 0; b < branches; i += soft->sizes[b++]) {
            float sum = 0;
            for (int64_t k = i; k < i + soft->sizes[b]; k++) sum += to->chances[k];
            to->sums[r * branches + b] = sum;
        }
    for (int64_t i = 0; i < rows * branches; i += LANES) store(to->entropies + i, logarithm(load(to->sums + i)));
    for (int64_t r = 0, i = 0; r < rows; r++)
        for (int64_t b = 0; b < branches; i += soft->sizes[b++]) {
            float *entropy = to->entropies + r * branches + b, log_sum = *entropy;
            *entropy = 0;
            for (int64_t k = i; k < i + soft->sizes[b]; k++) {
                to->logits[k] -= log_sum;
                to->chances[k] /= to->sums[r * branches + b];
                *entropy -= to->chances[k] * to->logits[k];
            }
        }
}

/* ln π of a = tanh u with u = mean + z σ: of z less Σ ln(1 - tanh² u) = Σ 2 (ln 2 - u - softplus(-2u)). */
static void draw(const Soft *soft, const Inputs *seen, const float *noise, const uint8_t *allowed, float *kept,
                 const Draws *to) {
    const int64_t actions = soft->actions;
    float *heads[3];
    heads_of(soft, to, heads);
    dense_forward(&soft->policy, seen, kept, heads);
    for (int64_t i = 0; i < seen->rows * actions; i += LANES) {
        int64_t n = least(LANES, seen->rows * actions - i);
        Vector z = load_some(noise + i, n), log_sigma = clamped(load(to->log_sigma + i), -20.0f, 2.0f);
        Vector u = load(to->mean + i) + z * exponential(log_sigma), twice = -2.0f * u;
        Vector size = where(twice < 0.0f, -twice, twice);
        Vector softplus = larger(twice, (Vector){0}) + logarithm(1.0f + exponential(-size));
        store(to->action + i, hyperbolic_tangent(u));
        /* ½ ln 2π, ln 2 */
        store(to->part + i, -0.5f * z * z - log_sigma - 0.918938533f - 2.0f * (0.693147181f - u - softplus));
    }
    for (int64_t r = 0; r < seen->rows; r++) {
        float sum = 0;
        for (int64_t a = 0; a < actions; a++) sum += to->part[r * actions + a];
        to->log_prob[r] = sum;
    }
    choose(soft, seen->rows, allowed, to);
}

static void learn(const Rates *rates, Learned *learned, int64_t count) {
    double scale = rates->max_norm < 0 ? 1 : clip_scale(count, learned->gradient, rates->max_norm);
    adam(count, rates, scale, ++learned->steps, learned);
}

/* The second's share of the derivative by the smaller of two numbers, as torch shares it. */
static float of_second(float a, float b) { return a > b ? 1.0f : a < b ? 0.0f : 0.5f; }

/* A row's value of a signal: Σ π(a) min Q(s, a), with several branches the smaller mean over branches of Σ π(a) Q(s, a).
 * q, other: of both critics, [width]. by_chances: NULL, or where derivatives by π are added; those by Q go where Q was. */
static float expected_value(const Soft *soft, const float *chances, float *q, float *other, float *by_chances) {
    const int64_t branches = soft->branches, width = width_of(soft);
    const float each = 1.0f / (float)most(branches, 1);
    float value = 0, sums[2] = {0, 0};
    if (branches > 1) {
        for (int64_t k = 0; k < width; k++) sums[0] += chances[k] * q[k], sums[1] += chances[k] * other[k];
        value = smaller(sums[0], sums[1]) * each;
    } else for (int64_t k = 0; k < width; k++) value += (branches ? chances[k] : 1) * smaller(q[k], other[k]);
    for (int64_t k = 0; by_chances && k < width; k++) {
        float second = branches > 1 ? of_second(sums[0], sums[1]) : of_second(q[k], other[k]);
        float chance = (branches ? chances[k] : 1) * each;
        by_chances[k] += ((1 - second) * q[k] + second * other[k]) * each;
        q[k] = chance * (1 - second);
        other[k] = chance * second;
    }
    return value;
}

/* -α ln π of a row's continuous action, and the mean over branches of α H. */
static float entropy_bonus(const Soft *soft, int64_t row, const Draws *draws, const float *alphas) {
    float bonus = 0;
    for (int64_t b = 0; b < soft->branches; b++)
        bonus += alphas[b] * draws->entropies[row * soft->branches + b] / (float)soft->branches;
    return soft->actions ? bonus - alphas[soft->branches] * draws->log_prob[row] : bonus;
}

/* y = r + γ V(s'), and r after the end of an episode. */
static void soft_targets(const Soft *soft, const Transitions *batch, float *q, const Draws *draws, const float *alphas,
                         float *targets) {
    const int64_t signals = soft->signals, width = width_of(soft), count = batch->rows * signals * width;
    for (int64_t r = 0; r < batch->rows; r++) {
        const float bonus = entropy_bonus(soft, r, draws, alphas) / (float)signals;
        for (int64_t s = 0; s < signals; s++) {
            float *own = q + (r * signals + s) * width;
            float value = expected_value(soft, draws->chances + r * soft->choices, own, own + count, NULL) + bonus;
            float continues = 1 - (float)batch->terminated[r] * soft->ends[s];
            targets[r * signals + s] = batch->rewards[r * signals + s] + soft->discounts[s] * continues * value;
        }
    }
}

/* Each critic's loss, ½ of the mean of w (Q - y)², where Q is the mean over branches of the choices taken; gradients by q
 * go where q was. errors: the mean of |Q - y| of a row. */
static void critic_losses(const Soft *soft, const Transitions *batch, const float *targets, float *q, double *losses,
                          float *errors) {
    const int64_t count = batch->rows * soft->signals, branches = soft->branches, width = width_of(soft);
    const float each = 1.0f / (float)most(branches, 1);
    memset(errors, 0, (size_t)batch->rows * sizeof(float));
    for (int64_t n = 0; n < CRITICS; n++) {
        double squares = 0;
        for (int64_t i = 0; i < count; i++, q += width) {
            int64_t r = i / soft->signals;
            const int64_t *chosen = batch->chosen + r * branches;
            float value = branches ? 0 : *q, weight = batch->weights ? batch->weights[r] : 1;
            for (int64_t b = 0; b < branches; b++) value += q[chosen[b]] * each;
            float error = value - targets[i], gradient = weight * error / (float)count;
            squares += (double)(weight * error * error);
            errors[r] += (error < 0 ? -error : error) / (float)(CRITICS * soft->signals);
            memset(q, 0, (size_t)width * sizeof(float));
            if (!branches) *q = gradient;
            for (int64_t b = 0; b < branches; b++) q[chosen[b]] = gradient * each;
        }
        losses[n] = 0.5 * squares / (double)count;
    }
}

/* The mean of each signal's soft value, and of the entropies, which are those of branches, then that of the continuous
 * action. Gradients of the loss, which is less the sum of these values, go by q where q was, and by π to by_chances. */
static void policy_values(const Soft *soft, int64_t rows, const Draws *draws, const float *alphas, float *q,
                          float *by_chances, double *values, double *entropies) {
    const int64_t signals = soft->signals, branches = soft->branches, width = width_of(soft);
    const int64_t count = rows * signals * width;
    const float share = -1.0f / (float)rows;
    memset(by_chances, 0, (size_t)(rows * width) * sizeof(float));
    memset(values, 0, (size_t)signals * sizeof(double));
    memset(entropies, 0, (size_t)(branches + (soft->actions > 0)) * sizeof(double));
    for (int64_t r = 0; r < rows; r++) {
        const float bonus = entropy_bonus(soft, r, draws, alphas) / (float)signals;
        for (int64_t b = 0; b < branches; b++) entropies[b] += (double)draws->entropies[r * branches + b] / (double)rows;
        if (soft->actions) entropies[branches] -= (double)draws->log_prob[r] / (double)rows;
        for (int64_t s = 0; s < signals; s++) {
            float *own = q + (r * signals + s) * width, *chances = draws->chances + r * soft->choices;
            float value = expected_value(soft, chances, own, own + count, by_chances + r * width);
            values[s] += (double)(value + bonus) / (double)rows;
        }
    }
    for (int64_t i = 0; i < CRITICS * count; i++) q[i] *= share;
    for (int64_t i = 0; i < rows * width; i++) by_chances[i] *= share;
}

/* From the gradient by π, and from -α H of each branch, that by logits, which goes where ln π was: ∂H/∂logit is
 * -π (ln π + H), and that of a sum Σ g π is π (g - Σ g π). */
static void logits_gradient(const Soft *soft, int64_t rows, const uint8_t *allowed, const float *alphas,
                            const float *by_chances, const Draws *draws) {
    for (int64_t r = 0, i = 0; r < rows; r++)
        for (int64_t b = 0; b < soft->branches; i += soft->sizes[b++]) {
            const float entropy = draws->entropies[r * soft->branches + b];
            const float share = alphas[b] / (float)(soft->branches * rows);
            float mean = 0;
            for (int64_t k = i; k < i + soft->sizes[b]; k++) mean += draws->chances[k] * by_chances[k];
            for (int64_t k = i; k < i + soft->sizes[b]; k++) {
                float slope = by_chances[k] - mean + share * (draws->logits[k] + entropy);
                draws->logits[k] = allowed && !allowed[k] ? 0 : draws->chances[k] * slope;
            }
        }
}

/* From the gradient by the actions' values, in grad_action, and from α ln π, to that by means and ln σ: both go where
 * these were. ∂ ln π / ∂u = 2 tanh u, ∂a / ∂u = 1 - a². */
static void policy_gradient(int64_t rows, int64_t actions, const float *noise, float alpha, const float *grad_action,
                            const Draws *draws) {
    const float share = alpha / (float)rows;
    for (int64_t i = 0; i < rows * actions; i += LANES) {
        Vector a = load(draws->action + i), log_sigma = load(draws->log_sigma + i);
        Vector z = load_some(noise + i, least(LANES, rows * actions - i));
        Vector by_u = load(grad_action + i) * (1.0f - a * a) + 2.0f * share * a;
        store(draws->mean + i, by_u);
        Vector by_log_sigma = by_u * z * exponential(log_sigma) - share;
        store(draws->log_sigma + i, where((log_sigma < -20.0f) | (log_sigma > 2.0f), (Vector){0}, by_log_sigma));
    }
}

/* The mean of a branch's target entropy, 0.2 ln of how many choices are allowed. first: the branch's first choice. */
static double target_entropy(const Soft *soft, int64_t rows, const uint8_t *allowed, int64_t branch, int64_t first) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t count = allowed ? 0 : soft->sizes[branch];
        for (int64_t k = first; allowed && k < first + soft->sizes[branch]; k++) count += allowed[r * soft->choices + k];
        sum += (double)logarithm(all((float)most(count, 1)))[0];
    }
    return 0.2 * sum / (double)rows;
}

/* Steps and the next ones, in which the action is set by now, one after another. [2 rows][inputs] */
static void join(const Transitions *batch, int64_t parts, float *to) {
    for (int which = 0; which < 2; which++)
        for (int64_t r = 0; r < batch->rows; r++)
            for (int64_t p = 0; p < parts; p++) {
                const Columns *part = &(which ? batch->next : batch->seen)[p];
                memcpy(to, part->at + r * part->width, (size_t)part->width * sizeof(float));
                to += part->width;
            }
}

/* What joint passes of the critics work with, from `at` on; returns where that ends. */
static float *lay_out_joint(const Stack *stack, int64_t rows, float *at, Joint *joint) {
    int64_t wide = 0, widest = 0;
    for (int64_t l = 0; l <= stack->depth; l++) {
        wide += stack->layers[l].inputs;
        widest = most(widest, most(stack->layers[l].inputs, stack->layers[l].outputs));
    }
    joint->kept = take_floats(&at, 2 * padded(rows) * wide * stack->networks);
    int64_t floats = wide * stack->networks * (int64_t)(sizeof(Normalizer) / sizeof(float));
    joint->normalizers = (Normalizer *)take_floats(&at, floats);
    joint->sums = take_floats(&at, 2 * LANES * widest);
    for (int k = 0; k < 2; k++) joint->grads[k] = take_floats(&at, padded(rows) * widest);
    return at;
}

/* means: of each critic's loss, and if the policy learns of its loss, of the entropy, each α, each signal's value.
 * errors: [rows]. Returns 0 where there was no memory, and then nothing has changed; else 1. */
int EXPORTED(sac_step)(Soft *soft, Transitions *batch, double *means, float *errors) {
    int64_t rows = batch->rows, actions = soft->actions, signals = soft->signals, sums[2] = {0, 0}, more = 0;
    const int64_t branches = soft->branches, parts = branches + (actions > 0), width = width_of(soft);
    const Stack *stacks[2] = {&soft->policy, &soft->critics};
    const int64_t inputs = soft->critics.layers[0].inputs, both_rows = 2 * rows, sensors = soft->sensors;
    Work work;
    Joint joint;
    for (int k = 0; k < 2; k++) {
        if (!make_work(&work, stacks[k], soft->norms ? both_rows : rows)) return 0;
        sums[k] = 2 * padded(rows) * work.sum * stacks[k]->networks;
    }
    int64_t numbers = padded(rows * actions), values = padded(CRITICS * rows * signals * width);
    if (soft->norms)
        more = lay_out_joint(&soft->critics, both_rows, (float *)64, &joint) - (float *)64 + padded(both_rows * inputs) +
               2 * values + padded(soft->critic_parameters);
    more += 3 * padded(rows * width) + 2 * padded(rows * branches) + padded(parts);
    float *at = workspace(1, sums[0] + sums[1] + 5 * numbers + padded(rows) + 3 * values + more);
    if (!at) return 0;
    float *kept = take_floats(&at, sums[0]), *kept_critics = take_floats(&at, sums[1]);
    Draws drawn = {.mean = take_floats(&at, numbers), .log_sigma = take_floats(&at, numbers),
                   .action = take_floats(&at, numbers), .part = take_floats(&at, numbers),
                   .log_prob = take_floats(&at, rows),
                   .logits = take_floats(&at, rows * width), .chances = take_floats(&at, rows * width),
                   .entropies = take_floats(&at, rows * branches), .sums = take_floats(&at, rows * branches)};
    float *grad_action = take_floats(&at, numbers), *targets = take_floats(&at, values);
    float *q = take_floats(&at, values), *next_q = take_floats(&at, values);
    float *by_chances = take_floats(&at, rows * width), *alphas = take_floats(&at, parts);
    for (int64_t i = 0; i < parts; i++) alphas[i] = exponential(all(soft->alpha_learned.parameters[i]))[0];
    Inputs next = {rows, sensors, batch->next}, next_chosen = {rows, sensors + (actions > 0), batch->next};
    Inputs seen = {rows, sensors, batch->seen}, chosen = {rows, sensors + (actions > 0), batch->seen};
    float *heads[3];
    heads_of(soft, &drawn, heads);
    const float *grad_q[1] = {q};

    draw(soft, &next, batch->next_noise, batch->next_allowed, NULL, &drawn);
    batch->next[sensors].at = drawn.action;
    if (soft->norms) {
        at = lay_out_joint(&soft->critics, both_rows, at, &joint);
        Columns joined = {take_floats(&at, both_rows * inputs), inputs};
        float *joint_q = take_floats(&at, 2 * values);
        join(batch, chosen.count, (float *)joined.at);
        joint_forward(&soft->critics, soft->norms, &(Inputs){both_rows, 1, &joined}, &joint, joint_q);
        for (int64_t n = 0, count = rows * signals * width; n < CRITICS; n++) {
            memcpy(q + n * count, joint_q + 2 * n * count, (size_t)count * sizeof(float));
            memcpy(next_q + n * count, joint_q + (2 * n + 1) * count, (size_t)count * sizeof(float));
        }
    } else {
        Stack followed = soft->critics;
        followed.theta = soft->target_parameters;
        dense_forward(&followed, &next_chosen, NULL, &next_q);
        dense_forward(&soft->critics, &chosen, kept_critics, &q);
    }
    soft_targets(soft, batch, next_q, &drawn, alphas, targets);
    critic_losses(soft, batch, targets, q, means, errors);
    if (soft->norms) joint_backward(&soft->critics, soft->norms, both_rows, &joint, rows, q);
    else dense_backward(&soft->critics, &chosen, kept_critics, grad_q, NULL);
    learn(&soft->rates[1], &soft->critics_learned, soft->critic_parameters);

    if (batch->improves) {
        double *signal_values = means + 4 + parts, *entropies = means + 4; /* until α takes their place */
        draw(soft, &seen, batch->noise, batch->allowed, kept, &drawn);
        batch->seen[sensors].at = drawn.action;
        Stack critics = soft->critics;
        if (soft->norms) critics = folded(&critics, soft->norms, at);
        dense_forward(&critics, &chosen, kept_critics, &q);
        policy_values(soft, rows, &drawn, alphas, q, by_chances, signal_values, entropies);
        if (actions) {
            dense_backward(&critics, &chosen, kept_critics, grad_q, grad_action);
            policy_gradient(rows, actions, batch->noise, alphas[branches], grad_action, &drawn);
        }
        logits_gradient(soft, rows, batch->allowed, alphas, by_chances, &drawn);
        dense_backward(&soft->policy, &seen, kept, (const float *const *)heads, NULL);
        learn(&soft->rates[0], &soft->policy_learned, soft->policy_parameters);
        means[2] = means[3] = 0;
        for (int64_t s = 0; s < signals; s++) means[2] -= signal_values[s];
        for (int64_t i = 0, first = 0; i < parts; first += i < branches ? soft->sizes[i] : 0, i++) {
            double wanted = i < branches ? target_entropy(soft, rows, batch->allowed, i, first) : -(double)actions;
            soft->alpha_learned.gradient[i] = (float)(entropies[i] - wanted);
            means[3] += entropies[i];
            means[4 + i] = alphas[i];
        }
        learn(&soft->rates[2], &soft->alpha_learned, parts);
    }

    const float *online = soft->critics_learned.parameters, tau = (float)soft->tau;
    float *target = soft->target_parameters;
    for (int64_t i = 0; target && i < soft->critic_parameters; i++)
        target[i] = tau == 1 ? online[i] : target[i] + tau * (online[i] - target[i]);
    return 1;
}
