/* An MLP policy, forwards and backwards, for a block of rows: bodies and heads. lstm.h has what remembers.
 *
 * What Python hands over has the same fields as in library.py. Places count floats in the vector of parameters. */
typedef struct {
    int64_t weight, bias; /* places of [outputs][inputs] and of [outputs] */
    int64_t inputs, outputs;
} Layer;
typedef struct {
    Layer from_features, from_memory; /* W and b, U and b'; both put out the gates i, f, g, o, H numbers each */
} Lstm;
typedef struct {
    int64_t parameters;          /* of all layers, in one vector */
    int64_t depth;               /* layers of a body */
    const Layer *actor, *critic; /* [depth] each; critic is NULL where the value head sits on the actor's body */
    Layer heads[3];              /* of means, logits and values; one that is absent has no outputs */
    const Lstm *lstms;           /* on the bodies of actor and critic; NULL without memory */
    int64_t log_sigma;           /* place of [numbers] */
    int64_t branches;
    const int64_t *choices;      /* of each branch, [branches]; they sum to K */
} Network;
enum { MEAN, LOGITS, VALUE };

/* N sequences in the order of time: first the first step of each, the longest sequence first, then the second step of
 * those that have one, and so on. Those that go on are then always the first ones, a step one product for all. */
typedef struct {
    int64_t steps;         /* of the longest one */
    const int64_t *active; /* sequences that have such a step, [steps] */
    const float *memories; /* before the first step, [N][memory_size]: the actor's h and c, then the critic's */
    int64_t memory_size;
} Sequences;

/* What an LSTM keeps of each row for the way back: rows, [padded H] or for the gates [padded 4H]. */
typedef struct {
    float *gates; /* i, f, g, o; on the way back gradients by what was put into their functions */
    float *hidden_before, *cell_before, *hidden, *squashed; /* h and c before the step; h and tanh c after it */
    float *output;                                          /* h in panels */
} Remembered;

/* What a block of rows is worked on with; in panels, but what is called rows, [most_rows][padded features]. */
typedef struct {
    const Network *network;
    const Sequences *sequences; /* how the rows follow each other; NULL without memory */
    const float *theta;
    float *gradient;
    int64_t most_rows, panels;      /* that it has room for, in whole panels; that it has */
    float *input_rows, *input;
    float *features[2], *slopes[2]; /* of actor and critic: what each layer of the body puts out, one after another, and
                                       Swish's derivative there */
    float *rows, *packed;           /* what a layer puts out, turned round; some columns of its weights */
    float *grad_layer, *grad_before;    /* gradients by what a layer puts out, and by what the one before it does */
    Remembered remembered[2];       /* by actor and critic */
    float *grad_gates, *carried[2];   /* gradients by gates, and rows of those by h and c that an earlier step left */
    float *turned, *widened;        /* U as [H][padded 4H], and as [4H][padded H] */
    float *heads[3], *chances;      /* outputs of the heads, then gradients by them; probabilities of choices */
    float *actions, *old_log_prob, *advantage, *old_value, *returns, *live; /* live: 1, or 0 in rows that fill up */
    int32_t *chosen, *allowed;      /* the choice of each branch; all bits where a choice is allowed */
    void *memory;
} Block;

/* Hands out what a block needs from `at` on; returns where that ends. */
static char *lay_out(Block *block, char *at) {
#define TAKE_FLOATS(field, count) block->field = (void *)at, at += ((size_t)(count) * sizeof(float) + 63) / 64 * 64
#define TAKE(field, features) TAKE_FLOATS(field, (features) * block->most_rows)
    const Network *network = block->network;
    int64_t inputs = network->actor[0].inputs, numbers = network->heads[MEAN].outputs, widest = inputs, sum = 0;
    int64_t choices = network->heads[LOGITS].outputs, signals = network->heads[VALUE].outputs;
    for (int64_t l = 0; l < network->depth; l++) {
        sum += network->actor[l].outputs;
        widest = most(widest, network->actor[l].outputs);
    }
    if (network->lstms) {
        int64_t size = network->lstms[0].from_memory.inputs, gates = 4 * size;
        for (int which = 0; which <= (network->critic != NULL); which++) {
#define KEEP(field, features) TAKE(remembered[which].field, features)
            KEEP(gates, padded(gates)); KEEP(hidden, padded(size)); KEEP(squashed, padded(size)); KEEP(output, size);
            KEEP(hidden_before, padded(size)); KEEP(cell_before, padded(size));
        }
        TAKE(grad_gates, gates); TAKE(carried[0], padded(size)); TAKE(carried[1], padded(size));
        TAKE_FLOATS(turned, size * padded(gates)); TAKE_FLOATS(widened, gates * padded(size));
        widest = most(widest, gates);
    }
    TAKE(input_rows, padded(inputs)); TAKE(input, inputs);
    TAKE(features[0], sum); TAKE(slopes[0], sum); TAKE(features[1], sum); TAKE(slopes[1], sum);
    TAKE(rows, padded(widest)); TAKE(grad_layer, widest); TAKE(grad_before, widest);
    TAKE(packed, widest + numbers + choices + signals);
    TAKE(heads[MEAN], numbers); TAKE(heads[LOGITS], choices); TAKE(heads[VALUE], signals); TAKE(chances, choices);
    TAKE(actions, numbers); TAKE(chosen, network->branches); TAKE(allowed, choices);
    TAKE(old_log_prob, 1); TAKE(advantage, 1); TAKE(live, 1); TAKE(old_value, signals); TAKE(returns, signals);
    return at;
}

/* Makes a block for at most so many rows. Returns 0 where there is no memory. */
static int make_block(Block *block, const Network *network, const Sequences *sequences, const float *theta,
                      float *gradient, int64_t rows) {
    *block = (Block){.network = network, .sequences = sequences, .theta = theta, .gradient = gradient};
    block->most_rows = padded(rows);
    size_t bytes = (size_t)(lay_out(block, (char *)64) - (char *)64);
    block->memory = calloc(1, bytes + 64);
    if (!block->memory) return 0;
    lay_out(block, (char *)(((uintptr_t)block->memory + 63) / 64 * 64));
    return 1;
}

/* A matrix as it lies in memory: its number [m][n] is at[m * row + n * column]. */
typedef struct {
    const float *at;
    int64_t rows, columns, row, column;
} Matrix;

/* y = A x + bias, or what is there + A x; bias: [A's rows] or NULL. */
static void multiply(const Block *block, const Matrix *a, const float *bias, int add, const float *x, float *y) {
    for (int64_t m = 0; m < a->rows; m += TILE_ROWS) {
        int64_t rows = least(TILE_ROWS, a->rows - m), row = a->row, column = a->column;
        const float *part = a->at + m * row;
        if (column != 1) { /* numbers that a tile takes together are to lie together */
            int whole = row == 1 && rows == TILE_ROWS; /* a copy of known length is one instruction or two */
            for (int64_t k = 0; k < a->columns; k++)
                if (whole) memcpy(block->packed + k * TILE_ROWS, part + k * column, TILE_ROWS * sizeof(float));
                else for (int64_t i = 0; i < rows; i++) block->packed[k * TILE_ROWS + i] = part[i * row + k * column];
            part = block->packed, row = 1, column = TILE_ROWS;
        }
        for (int64_t p = 0; p < block->panels; p++) {
            Product q = {1, a->columns, part, row, column, 0, x + p * a->columns * PANEL, PANEL};
            tile(rows, &q, bias ? bias + m : NULL, add, y + (p * a->rows + m) * PANEL, PANEL);
        }
    }
}

/* C = a bᵀ, or what is there + a bᵀ: sums over all rows of the block. a: [m] in panels; b: [n] as rows; C: [m][n]. */
static void multiply_turned(const Block *block, int64_t m, const float *a, int64_t n, const float *b, int add,
                            float *c) {
    float partial[TILE_ROWS * PANEL];
    for (int64_t i = 0; i < m; i += TILE_ROWS) {
        int64_t rows = least(TILE_ROWS, m - i);
        for (int64_t j = 0; j < n; j += PANEL) {
            Product q = {block->panels, PANEL, a + i * PANEL, PANEL, 1, m * PANEL, b + j, padded(n)};
            if (j + PANEL <= n) {
                tile(rows, &q, NULL, add, c + i * n + j, n);
                continue;
            }
            tile(rows, &q, NULL, 0, partial, PANEL);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0; k < n - j; k++) {
                    float *to = c + (i + r) * n + j + k;
                    *to = partial[r * PANEL + k] + (add ? *to : 0);
                }
        }
    }
}

/* Σ y over all rows of the block, or what is there + that. y: [count] in panels. */
static void sum_rows(const Block *block, int64_t count, const float *y, int add, float *sums) {
    for (int64_t m = 0; m < count; m++) {
        Vector sum = {0};
        for (int64_t p = 0; p < block->panels; p++)
            for (int64_t j = 0; j < PANEL; j += LANES) sum += load(y + (p * count + m) * PANEL + j);
        sums[m] = total(sum) + (add ? sums[m] : 0);
    }
}

/* y = W x + b */
static void linear(const Block *block, const Layer *layer, const float *x, float *y) {
    Matrix weight = {block->theta + layer->weight, layer->outputs, layer->inputs, layer->inputs, 1};
    multiply(block, &weight, block->theta + layer->bias, 0, x, y);
}

/* ∂L/∂x = Wᵀ ∂L/∂y; `add` to what is there. */
static void linear_by_input(const Block *block, const Layer *layer, const float *grad_y, int add, float *grad_x) {
    Matrix turned = {block->theta + layer->weight, layer->inputs, layer->outputs, 1, layer->inputs};
    multiply(block, &turned, NULL, add, grad_y, grad_x);
}

/* ∂L/∂W += ∂L/∂y xᵀ and ∂L/∂b += Σ ∂L/∂y, sums over all rows of the block. x: as rows. */
static void linear_by_parameters(const Block *block, const Layer *layer, const float *grad_y, const float *x) {
    multiply_turned(block, layer->outputs, grad_y, layer->inputs, x, 1, block->gradient + layer->weight);
    sum_rows(block, layer->outputs, grad_y, 1, block->gradient + layer->bias);
}

/* From panels to rows, and back. */
static void to_rows(const Block *block, int64_t features, const float *x, float *rows) {
    int64_t width = padded(features);
    for (int64_t r = 0; r < block->panels * PANEL; r += LANES)
        for (int64_t f = 0; f < features; f += LANES)
            turn(x + (r / PANEL * features + f) * PANEL + r % PANEL, PANEL, features - f, rows + r * width + f, width,
                 LANES);
}

static void to_panels(const Block *block, int64_t features, const float *rows, float *x) {
    int64_t width = padded(features);
    for (int64_t r = 0; r < block->panels * PANEL; r += LANES)
        for (int64_t f = 0; f < features; f += LANES)
            turn(rows + r * width + f, width, LANES, x + (r / PANEL * features + f) * PANEL + r % PANEL, PANEL,
                 features - f);
}

/* Swish, x σ(x), in place of `count` sums, and its derivative σ + x σ (1 - σ); or ReLU and its derivative. */
static void activate(int relu, int64_t count, float *features, float *slopes) {
    for (int64_t i = 0; i < count; i += LANES) {
        Vector before = load(features + i);
        if (relu) {
            store(features + i, where(before < 0.0f, (Vector){0}, before)); /* NaN stays */
            store(slopes + i, where(before <= 0.0f, (Vector){0}, all(1.0f)));
            continue;
        }
        Vector gate = sigmoid(before), after = before * gate;
        store(features + i, after);
        store(slopes + i, gate + after * (1.0f - gate));
    }
}

/* A body's layers, each followed by Swish. Returns what the last one puts out. which: 0 for the actor's body, 1 for the
 * critic's. */
static const float *body(const Block *block, const Layer *layers, int which) {
    const float *x = block->input;
    float *features = block->features[which], *slopes = block->slopes[which];
    for (int64_t l = 0; l < block->network->depth; l++) {
        int64_t count = layers[l].outputs * block->panels * PANEL;
        linear(block, &layers[l], x, features);
        activate(0, count, features, slopes);
        x = features;
        features += count;
        slopes += count;
    }
    return x;
}

/* From the gradient by what a body's last layer puts out, in grad_layer, to those by its parameters. */
static void body_backward(Block *block, const Layer *layers, int which) {
    int64_t place = 0, columns = block->panels * PANEL;
    for (int64_t l = 0; l < block->network->depth; l++) place += layers[l].outputs * columns;
    for (int64_t l = block->network->depth - 1; l >= 0; l--) {
        int64_t count = layers[l].outputs * columns;
        place -= count;
        for (int64_t i = 0; i < count; i += LANES)
            store(block->grad_layer + i, load(block->grad_layer + i) * load(block->slopes[which] + place + i));
        if (l == 0) {
            linear_by_parameters(block, &layers[l], block->grad_layer, block->input_rows);
            return;
        }
        to_rows(block, layers[l].inputs, block->features[which] + place - layers[l].inputs * columns, block->rows);
        linear_by_parameters(block, &layers[l], block->grad_layer, block->rows);
        linear_by_input(block, &layers[l], block->grad_layer, 0, block->grad_before);
        float *swapped = block->grad_layer;
        block->grad_layer = block->grad_before;
        block->grad_before = swapped;
    }
}

/* Back through the heads from `head` to `last`, which sit on the same features, to grad_layer. */
static void heads_backward(const Block *block, int head, int last, const float *features) {
    int add = 0;
    to_rows(block, block->network->heads[VALUE].inputs, features, block->rows);
    for (; head <= last; head++) {
        const Layer *layer = &block->network->heads[head];
        linear_by_parameters(block, layer, block->heads[head], block->rows);
        linear_by_input(block, layer, block->heads[head], add, block->grad_layer);
        add |= layer->outputs > 0;
    }
}

