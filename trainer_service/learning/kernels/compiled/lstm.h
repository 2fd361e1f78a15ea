/* Long short-term memory on what a body puts out, both ways: networks/encoders/memory.py has the equations.
 *
 * Products with features are those of any layer, for all rows at once. What is left goes step by step, on rows: numbers
 * of one agent side by side, so that a step is a product of few agents with a wide matrix, and plain arithmetic. */

/* n floats, at most LANES: the rest of a vector is 0, and stays as it is in memory. */
INLINE Vector load_some(const float *at, int64_t n) {
    if (n == LANES) return load(at);
    Vector x = {0};
    for (int64_t i = 0; i < n; i++) x[i] = at[i];
    return x;
}
INLINE void store_some(float *at, Vector x, int64_t n) {
    if (n == LANES) store(at, x);
    else for (int64_t i = 0; i < n; i++) at[i] = x[i];
}
INLINE Vector hyperbolic_tangent(Vector x) { return 1.0f - 2.0f / (1.0f + bounded_exponential(2.0f * x)); }

/* C = A B, or C += A B, for `rows` rows of A and all columns of B, whose number is padded, as that of C is. */
static void multiply_rows(int64_t rows, int64_t inner, const float *a, int64_t a_row, const float *b, int64_t columns,
                          int add, float *c) {
    for (int64_t n = 0; n < columns; n += PANEL)
        for (int64_t m = 0; m < rows; m += TILE_ROWS) {
            Product q = {1, inner, a + m * a_row, a_row, 1, 0, b + n, columns};
            tile(least(TILE_ROWS, rows - m), &q, NULL, add, c + m * columns + n, columns);
        }
}

/* One agent's step. gates: W x + b + U h, becoming i, f, g, o; cell: c before. h and c go to the agent's row of the next
 * step too, where it has one. */
static void lstm_cell(int64_t size, const float *bias, float *gates, const float *cell, float *squashed, float *hidden,
                      float *next_hidden, float *next_cell) {
    for (int64_t j = 0; j < size; j += LANES) {
        int64_t n = least(LANES, size - j);
#define GATE(k) (load_some(gates + k * size + j, n) + load_some(bias + k * size + j, n))
        Vector i = sigmoid(GATE(0)), f = sigmoid(GATE(1)), g = hyperbolic_tangent(GATE(2)), o = sigmoid(GATE(3));
        Vector c = f * load(cell + j) + i * g, flat = hyperbolic_tangent(c);
        store_some(gates + j, i, n), store_some(gates + size + j, f, n);
        store_some(gates + 2 * size + j, g, n), store_some(gates + 3 * size + j, o, n);
        store(squashed + j, flat), store(hidden + j, o * flat);
        if (next_hidden) store(next_hidden + j, o * flat), store(next_cell + j, c);
    }
}

/* Unrolls all sequences on a body's features. Returns h of all rows, in panels. */
static const float *lstm(const Block *block, int which, const float *features) {
    const Lstm *layer = &block->network->lstms[which];
    const Sequences *sequences = block->sequences;
    const Remembered *kept = &block->remembered[which];
    const float *weight = block->theta + layer->from_memory.weight, *bias = block->theta + layer->from_memory.bias;
    int64_t size = layer->from_memory.inputs, gates = 4 * size, wide = padded(gates), narrow = padded(size);
    for (int64_t k = 0; k < gates; k++)
        for (int64_t j = 0; j < size; j++) block->turned[j * wide + k] = weight[k * size + j];
    linear(block, &layer->from_features, features, block->grad_gates);
    to_rows(block, gates, block->grad_gates, kept->gates);
    for (int64_t s = 0; s < sequences->active[0]; s++) {
        const float *start = sequences->memories + s * sequences->memory_size + 2 * size * which;
        memcpy(kept->hidden_before + s * narrow, start, (size_t)size * sizeof(float));
        memcpy(kept->cell_before + s * narrow, start + size, (size_t)size * sizeof(float));
    }
    for (int64_t t = 0, row = 0; t < sequences->steps; row += sequences->active[t++]) {
        int64_t count = sequences->active[t], next = row + count;
        int64_t going_on = t + 1 < sequences->steps ? sequences->active[t + 1] : 0;
        multiply_rows(count, size, kept->hidden_before + row * narrow, narrow, block->turned, wide, 1,
                      kept->gates + row * wide);
        for (int64_t s = 0; s < count; s++) {
            int64_t here = (row + s) * narrow, there = (next + s) * narrow;
            lstm_cell(size, bias, kept->gates + (row + s) * wide, kept->cell_before + here, kept->squashed + here,
                      kept->hidden + here, s < going_on ? kept->hidden_before + there : NULL,
                      kept->cell_before + there);
        }
    }
    to_panels(block, size, kept->hidden, kept->output);
    return kept->output;
}

/* One agent's step, back. grad_hidden: the gradient by h that comes from above; carried: those by h and c that come from
 * the step after, the latter becoming that by c before. Gates become the gradient by what was put into them. */
static void lstm_cell_backward(int64_t size, float *gates, const float *cell, const float *squashed,
                               const float *grad_hidden, const float *carried_hidden, float *carried_cell) {
    for (int64_t j = 0; j < size; j += LANES) {
        int64_t n = least(LANES, size - j);
        Vector i = load_some(gates + j, n), f = load_some(gates + size + j, n);
        Vector g = load_some(gates + 2 * size + j, n), o = load_some(gates + 3 * size + j, n);
        Vector flat = load(squashed + j), grad_h = load(grad_hidden + j) + load(carried_hidden + j);
        Vector grad_c = load(carried_cell + j) + grad_h * o * (1.0f - flat * flat);
        store(carried_cell + j, grad_c * f);
        store_some(gates + j, grad_c * g * i * (1.0f - i), n);
        store_some(gates + size + j, grad_c * load(cell + j) * f * (1.0f - f), n);
        store_some(gates + 2 * size + j, grad_c * i * (1.0f - g * g), n);
        store_some(gates + 3 * size + j, grad_h * flat * o * (1.0f - o), n);
    }
}

/* From the gradient by h of all rows, in grad_layer, to those by the parameters, and by the features, in grad_layer. */
static void lstm_backward(Block *block, int which, const float *features) {
    const Lstm *layer = &block->network->lstms[which];
    const Sequences *sequences = block->sequences;
    const Remembered *kept = &block->remembered[which];
    int64_t size = layer->from_memory.inputs, gates = 4 * size, wide = padded(gates), narrow = padded(size), row = 0;
    for (int64_t k = 0; k < gates; k++)
        memcpy(block->widened + k * narrow, block->theta + layer->from_memory.weight + k * size,
               (size_t)size * sizeof(float));
    to_rows(block, size, block->grad_layer, block->rows);
    for (int k = 0; k < 2; k++)
        memset(block->carried[k], 0, (size_t)(sequences->active[0] * narrow) * sizeof(float));
    for (int64_t t = 0; t < sequences->steps; t++) row += sequences->active[t];
    memset(kept->gates + row * wide, 0, (size_t)((block->panels * PANEL - row) * wide) * sizeof(float));
    for (int64_t t = sequences->steps - 1; t >= 0; t--) {
        row -= sequences->active[t];
        for (int64_t s = 0; s < sequences->active[t]; s++) {
            int64_t here = (row + s) * narrow;
            lstm_cell_backward(size, kept->gates + (row + s) * wide, kept->cell_before + here, kept->squashed + here,
                               block->rows + here, block->carried[0] + s * narrow, block->carried[1] + s * narrow);
        }
        multiply_rows(sequences->active[t], gates, kept->gates + row * wide, wide, block->widened, narrow, 0,
                      block->carried[0]);
    }
    to_panels(block, gates, kept->gates, block->grad_gates);
    linear_by_parameters(block, &layer->from_memory, block->grad_gates, kept->hidden_before);
    to_rows(block, layer->from_features.inputs, features, block->rows);
    linear_by_parameters(block, &layer->from_features, block->grad_gates, block->rows);
    linear_by_input(block, &layer->from_features, block->grad_gates, 0, block->grad_layer);
}
