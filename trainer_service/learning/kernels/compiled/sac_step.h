/* A gradient step of soft actor-critic with continuous actions: what SAC._step does with torch, in its order. Critics
 * move towards the soft targets, then policy and temperature may learn, then the critics' targets follow. Critics with
 * batch normalization have no targets. The gradients are in closed form; ops/soft_actor_critic.py has the equations. */
typedef struct {
    Stack policy, critics;            /* the policy's heads: means and ln σ; critics have one head, of the signals */
    Learned policy_learned, critics_learned, alpha_learned;
    const Rates *rates;               /* of the three, in this order */
    float *target_parameters;         /* of the target critics; NULL with norms */
    const Norm *norms;                /* before each layer of the critics, and the last one; NULL for none */
    int64_t policy_parameters, critic_parameters;
    double tau;
    const float *discounts, *ends;    /* [signals]; ends: 1 where a signal's value is 0 after the end of an episode */
    int64_t sensors, actions, signals;
} Soft;
typedef struct { /* a minibatch; what belongs to a row lies side by side */
    int64_t rows;
    Columns *seen, *next;         /* [sensors + 1]: observations, then the action; that of `next` is set here */
    const float *rewards;         /* [rows][signals] */
    const uint8_t *terminated;    /* [rows] */
    const float *weights;         /* [rows], or NULL where all are equal */
    const float *next_noise, *noise; /* of actions, [rows][actions]; noise is NULL where the policy is not to learn */
} Transitions;

enum { CRITICS = 2 };

/* What the policy puts out for a minibatch, and the actions drawn from that. [rows][actions], and log_prob [rows]. */
typedef struct {
    float *mean, *log_sigma, *action, *log_prob;
    float *part; /* of each action's ln π */
} Draws;

/* NaN stays, whichever it is. */
static float smaller(float a, float b) { return a > b || b != b ? b : a; }

static float *take_floats(float **at, int64_t count) {
    float *taken = *at;
    *at += (count + PANEL - 1) / PANEL * PANEL;
    return taken;
}

/* ln π of a = tanh u with u = mean + z σ: of z less Σ ln(1 - tanh² u) = Σ 2 (ln 2 - u - softplus(-2u)). */
static void draw(const Stack *policy, const Inputs *seen, const float *noise, float *kept, int64_t actions,
                 const Draws *to) {
    float *heads[2] = {to->mean, to->log_sigma};
    dense_forward(policy, seen, kept, heads);
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
}

static void learn(const Rates *rates, Learned *learned, int64_t count) {
    double scale = rates->max_norm < 0 ? 1 : clip_scale(count, learned->gradient, rates->max_norm);
    adam(count, rates, scale, ++learned->steps, learned);
}

/* y = r + γ (min Q'(s', a') - α ln π(a') / S), and r after the end of an episode. */
static void soft_targets(const Soft *soft, const Transitions *batch, const float *q, const float *log_prob, float alpha,
                         float *targets) {
    int64_t signals = soft->signals, count = batch->rows * signals;
    for (int64_t r = 0; r < batch->rows; r++)
        for (int64_t s = 0; s < signals; s++) {
            int64_t i = r * signals + s;
            float value = smaller(q[i], q[count + i]) - alpha * log_prob[r] / (float)signals;
            float continues = 1 - (float)batch->terminated[r] * soft->ends[s];
            targets[i] = batch->rewards[i] + soft->discounts[s] * continues * value;
        }
}

/* Each critic's loss, ½ of the mean of w (Q - y)²; gradients by q go where q was. errors: the mean of |Q - y| of a row. */
static void critic_losses(const Soft *soft, const Transitions *batch, const float *targets, float *q, double *losses,
                          float *errors) {
    int64_t count = batch->rows * soft->signals;
    memset(errors, 0, (size_t)batch->rows * sizeof(float));
    for (int64_t n = 0; n < CRITICS; n++) {
        double squares = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t r = i / soft->signals;
            float error = q[n * count + i] - targets[i], weight = batch->weights ? batch->weights[r] : 1;
            squares += (double)(weight * error * error);
            errors[r] += (error < 0 ? -error : error) / (float)(CRITICS * soft->signals);
            q[n * count + i] = weight * error / (float)count;
        }
        losses[n] = 0.5 * squares / (double)count;
    }
}

/* The policy's loss, -Σ over signals of the mean of min Q + H; gradients by q go where q was. values: the mean of each
 * signal. Returns the mean of ln π. */
static double policy_value(const Soft *soft, int64_t rows, const float *log_prob, float alpha, float *q,
                           double *values) {
    int64_t signals = soft->signals, count = rows * signals;
    double log_probs = 0;
    for (int64_t r = 0; r < rows; r++) log_probs += (double)log_prob[r] / (double)rows;
    for (int64_t s = 0; s < signals; s++) values[s] = -(double)alpha * log_probs / (double)signals;
    for (int64_t i = 0; i < count; i++) {
        float first = q[i], second = q[count + i], share = -1.0f / (float)rows;
        float of_second = first > second ? 1.0f : first < second ? 0.0f : 0.5f; /* as torch shares it */
        values[i % signals] += (double)smaller(first, second) / (double)rows;
        q[i] = share * (1.0f - of_second);
        q[count + i] = share * of_second;
    }
    return log_probs;
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

/* means: of each critic's loss, and if the policy learns of its loss, of the entropy -ln π, α, of each signal's value.
 * errors: [rows]. Returns 0 where there was no memory, and then nothing has changed; else 1. */
int EXPORTED(sac_step)(Soft *soft, Transitions *batch, double *means, float *errors) {
    int64_t rows = batch->rows, actions = soft->actions, signals = soft->signals, sums[2] = {0, 0}, more = 0;
    const Stack *stacks[2] = {&soft->policy, &soft->critics};
    const int64_t inputs = soft->critics.layers[0].inputs, both_rows = 2 * rows;
    Work work;
    Joint joint;
    for (int k = 0; k < 2; k++) {
        if (!make_work(&work, stacks[k], soft->norms ? both_rows : rows)) return 0;
        sums[k] = 2 * padded(rows) * work.sum * stacks[k]->networks;
    }
    int64_t numbers = padded(rows * actions), values = padded(CRITICS * rows * signals);
    if (soft->norms)
        more = lay_out_joint(&soft->critics, both_rows, (float *)64, &joint) - (float *)64 + padded(both_rows * inputs) +
               2 * values + padded(soft->critic_parameters);
    float *at = workspace(1, sums[0] + sums[1] + 5 * numbers + padded(rows) + 3 * values + more);
    if (!at) return 0;
    float *kept = take_floats(&at, sums[0]), *kept_critics = take_floats(&at, sums[1]);
    Draws drawn = {.mean = take_floats(&at, numbers), .log_sigma = take_floats(&at, numbers),
                   .action = take_floats(&at, numbers), .part = take_floats(&at, numbers),
                   .log_prob = take_floats(&at, rows)};
    float *grad_action = take_floats(&at, numbers), *targets = take_floats(&at, values);
    float *q = take_floats(&at, values), *next_q = take_floats(&at, values);
    Columns *action = &batch->seen[soft->sensors];
    float alpha = exponential(all(*soft->alpha_learned.parameters))[0];
    Inputs next = {rows, soft->sensors, batch->next}, next_chosen = {rows, soft->sensors + 1, batch->next};
    Inputs seen = {rows, soft->sensors, batch->seen}, chosen = {rows, soft->sensors + 1, batch->seen};
    const float *heads[2] = {drawn.mean, drawn.log_sigma}, *grad_q[1] = {q};

    draw(&soft->policy, &next, batch->next_noise, NULL, actions, &drawn);
    batch->next[soft->sensors].at = drawn.action;
    if (soft->norms) {
        at = lay_out_joint(&soft->critics, both_rows, at, &joint);
        Columns joined = {take_floats(&at, both_rows * inputs), inputs};
        float *joint_q = take_floats(&at, 2 * values);
        join(batch, soft->sensors + 1, (float *)joined.at);
        joint_forward(&soft->critics, soft->norms, &(Inputs){both_rows, 1, &joined}, &joint, joint_q);
        for (int64_t n = 0, count = rows * signals; n < CRITICS; n++) {
            memcpy(q + n * count, joint_q + 2 * n * count, (size_t)count * sizeof(float));
            memcpy(next_q + n * count, joint_q + (2 * n + 1) * count, (size_t)count * sizeof(float));
        }
    } else {
        Stack followed = soft->critics;
        followed.theta = soft->target_parameters;
        dense_forward(&followed, &next_chosen, NULL, &next_q);
        dense_forward(&soft->critics, &chosen, kept_critics, &q);
    }
    soft_targets(soft, batch, next_q, drawn.log_prob, alpha, targets);
    critic_losses(soft, batch, targets, q, means, errors);
    if (soft->norms) joint_backward(&soft->critics, soft->norms, both_rows, &joint, rows, q);
    else dense_backward(&soft->critics, &chosen, kept_critics, grad_q, NULL);
    learn(&soft->rates[1], &soft->critics_learned, soft->critic_parameters);

    if (batch->noise) {
        draw(&soft->policy, &seen, batch->noise, kept, actions, &drawn);
        action->at = drawn.action;
        Stack critics = soft->critics;
        if (soft->norms) critics = folded(&critics, soft->norms, at);
        dense_forward(&critics, &chosen, kept_critics, &q);
        double log_prob = policy_value(soft, rows, drawn.log_prob, alpha, q, means + 5);
        dense_backward(&critics, &chosen, kept_critics, grad_q, grad_action);
        policy_gradient(rows, actions, batch->noise, alpha, grad_action, &drawn);
        dense_backward(&soft->policy, &seen, kept, heads, NULL);
        learn(&soft->rates[0], &soft->policy_learned, soft->policy_parameters);
        *soft->alpha_learned.gradient = (float)((double)actions - log_prob); /* H - H_target, which is -actions */
        learn(&soft->rates[2], &soft->alpha_learned, 1);
        means[2] = 0;
        for (int64_t s = 0; s < signals; s++) means[2] -= means[5 + s];
        means[3] = -log_prob;
        means[4] = alpha;
    }

    const float *online = soft->critics_learned.parameters, tau = (float)soft->tau;
    float *target = soft->target_parameters;
    for (int64_t i = 0; target && i < soft->critic_parameters; i++)
        target[i] = tau == 1 ? online[i] : target[i] + tau * (online[i] - target[i]);
    return 1;
}
