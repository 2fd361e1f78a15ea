/* Stacks of dense layers, as in the policy and the critics of a replay learner: a body of layers with Swish or ReLU, and
 * linear heads on its features; forwards and backwards. Several networks of one shape may read the same inputs. Rows are
 * worked off in blocks, as PPO's are. */
typedef struct {
    const float *at; /* [rows][width] */
    int64_t width;
} Columns;
typedef struct {
    int64_t networks, depth, heads;
    int64_t relu;         /* 1: ReLU, 0: Swish */
    int64_t turned;       /* 0: weights are [outputs][inputs]; 1: [inputs][outputs] */
    const Layer *layers;  /* [depth + heads]: of a body, then the heads. The first network's; the others' follow each */
    const float *theta;
    float *gradient;
} Stack;
typedef struct { /* what a stack is put in: parts side by side */
    int64_t rows, count;
    const Columns *parts;
} Inputs;

/* Two memories of a thread, which grow, and end with it. */
typedef struct {
    float *memory[2];
    int64_t size[2];
} Memories;
static pthread_key_t memories_of_thread;
static int has_key;

static void free_memories(void *memories) {
    for (int which = 0; which < 2; which++) free(((Memories *)memories)->memory[which]);
    free(memories);
}
static void make_key(void) { has_key = !pthread_key_create(&memories_of_thread, free_memories); }

/* One of them, for so many floats. Returns NULL where there is none. */
static float *workspace(int which, int64_t floats) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pthread_once(&once, make_key) || !has_key) return NULL;
    Memories *own = pthread_getspecific(memories_of_thread);
    if (!own) {
        own = calloc(1, sizeof(Memories));
        if (!own || pthread_setspecific(memories_of_thread, own)) return free(own), NULL;
    }
    if (floats > own->size[which]) {
        free(own->memory[which]);
        own->size[which] = 0;
        if (posix_memalign((void **)&own->memory[which], 64, (size_t)floats * sizeof(float))) own->memory[which] = NULL;
        else own->size[which] = floats;
    }
    return own->memory[which];
}

/* What a block of rows is worked on with, for any of the networks. */
typedef struct {
    Block block; /* with panels, packed, rows, input and input_rows, grad_layer, grad_before */
    float *features;
    int64_t sum; /* features of all layers of a body */
} Work;

/* Returns 0 where there is no memory. */
static int make_work(Work *work, const Stack *stack, int64_t most_rows) {
    const Layer *layers = stack->layers;
    int64_t inputs = layers[0].inputs, widest = inputs, rows = least(padded(most_rows), BLOCK);
    *work = (Work){.sum = 0};
    for (int64_t l = 0; l < stack->depth + stack->heads; l++) {
        widest = most(widest, layers[l].outputs);
        if (l < stack->depth) work->sum += layers[l].outputs;
    }
    float *at = workspace(0, rows * (padded(inputs) + inputs + padded(widest) + 2 * widest + 2 * work->sum) +
                          TILE_ROWS * widest);
    if (!at) return 0;
    Block *block = &work->block;
    block->input_rows = at, at += rows * padded(inputs);
    block->input = at, at += rows * inputs;
    block->rows = at, at += rows * padded(widest);
    block->grad_layer = at, at += rows * widest;
    block->grad_before = at, at += rows * widest;
    work->features = at, at += 2 * rows * work->sum;
    block->packed = at;
    return 1;
}

/* Rows from `first` on, at most BLOCK, of all parts side by side to the block's inputs; those that fill up are 0. */
static void gather_columns(Block *block, int64_t width, const Inputs *inputs, int64_t first) {
    int64_t count = least(BLOCK, inputs->rows - first), padded_width = padded(width);
    block->panels = padded(count) / PANEL;
    for (int64_t r = 0; r < block->panels * PANEL; r++) {
        float *to = block->input_rows + r * padded_width;
        memset(to, 0, (size_t)padded_width * sizeof(float));
        for (int64_t p = 0; r < count && p < inputs->count; to += inputs->parts[p++].width) {
            const Columns *part = &inputs->parts[p];
            memcpy(to, part->at + (first + r) * part->width, (size_t)part->width * sizeof(float));
        }
    }
    to_panels(block, width, block->input_rows, block->input);
}

static Matrix weight_of(const Stack *stack, const Layer *layer, int64_t network) {
    int64_t outputs = layer->outputs, inputs = layer->inputs;
    const float *at = stack->theta + layer->weight + network * inputs * outputs;
    return stack->turned ? (Matrix){at, outputs, inputs, 1, outputs} : (Matrix){at, outputs, inputs, inputs, 1};
}

/* Where a network keeps what its layers put out for a block from row `first` on, and the derivatives there. */
static float *kept_at(const Work *work, int64_t rows, float *kept, int64_t network, int64_t first) {
    return kept ? kept + 2 * work->sum * (network * padded(rows) + first) : work->features;
}

/* From panels to rows of a matrix [rows][count], of which the block has some; and back, with 0 in rows that fill up. */
static void write_rows(const float *y, int64_t count, int64_t rows, int add, float *to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++)
            to[r * count + i] = y[(r / PANEL * count + i) * PANEL + r % PANEL] + (add ? to[r * count + i] : 0);
}
static void read_rows(const Block *block, const float *from, int64_t count, int64_t rows, float *y) {
    memset(y, 0, (size_t)(block->panels * PANEL * count) * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++) y[(r / PANEL * count + i) * PANEL + r % PANEL] = from[r * count + i];
}

/* outputs: of each head, [networks][rows][its outputs]. kept: for the way back, 2 numbers for each row, rounded up to
 * whole panels, and each feature of each body; NULL for none. */
static void dense_forward(const Stack *stack, const Inputs *inputs, float *kept, float *const *outputs) {
    Work work;
    make_work(&work, stack, inputs->rows);
    Block *block = &work.block;
    for (int64_t first = 0; first < inputs->rows; first += BLOCK) {
        gather_columns(block, stack->layers[0].inputs, inputs, first);
        int64_t rows = block->panels * PANEL, count = least(BLOCK, inputs->rows - first);
        for (int64_t n = 0; n < stack->networks; n++) {
            const float *x = block->input;
            float *features = kept_at(&work, inputs->rows, kept, n, first);
            for (int64_t l = 0; l < stack->depth + stack->heads; l++) {
                const Layer *layer = &stack->layers[l];
                int64_t size = layer->outputs;
                Matrix weight = weight_of(stack, layer, n);
                float *y = l < stack->depth ? features : block->grad_layer;
                multiply(block, &weight, stack->theta + layer->bias + n * size, 0, x, y);
                if (l >= stack->depth) {
                    write_rows(y, size, count, 0, outputs[l - stack->depth] + (n * inputs->rows + first) * size);
                    continue;
                }
                activate(stack->relu != 0, size * rows, features, features + size * rows);
                x = features;
                features += 2 * size * rows;
            }
        }
    }
}

/* Gradients by weight and bias, sums over all rows. x: what the layer was put in; x_rows: the same as rows. */
static void dense_by_parameters(const Block *block, const Stack *stack, const Layer *layer, int64_t network,
                                const float *grad_y, const float *x, const float *x_rows, int add) {
    int64_t outputs = layer->outputs, inputs = layer->inputs;
    float *gradient = stack->gradient + layer->weight + network * inputs * outputs;
    sum_rows(block, outputs, grad_y, add, stack->gradient + layer->bias + network * outputs);
    if (stack->turned) {
        to_rows(block, outputs, grad_y, block->rows);
        multiply_turned(block, inputs, x, outputs, block->rows, add, gradient);
        return;
    }
    if (!x_rows) {
        to_rows(block, inputs, x, block->rows);
        x_rows = block->rows;
    }
    multiply_turned(block, outputs, grad_y, inputs, x_rows, add, gradient);
}

/* The gradient by what a layer was put in, from its number `start` on. */
static void dense_by_input(const Block *block, const Stack *stack, const Layer *layer, int64_t network, int64_t start,
                           int64_t count, const float *grad_y, int add, float *grad_x) {
    Matrix weight = weight_of(stack, layer, network);
    Matrix turned = {weight.at + start * weight.column, count, layer->outputs, weight.column, weight.row};
    multiply(block, &turned, NULL, add, grad_y, grad_x);
}

/* From the gradients by what dense_forward gave, for which it kept what it needed: those by all parameters, or where
 * grad_last is not NULL that by the last part of the inputs, [rows][its width], the sum over the networks. */
static void dense_backward(const Stack *stack, const Inputs *inputs, float *kept, const float *const *grad_outputs,
                           float *grad_last) {
    Work work;
    make_work(&work, stack, inputs->rows);
    Block *block = &work.block;
    const Layer *layers = stack->layers;
    int64_t depth = stack->depth;
    for (int64_t n = 0; n < stack->networks; n++)
        for (int64_t first = 0; first < inputs->rows; first += BLOCK) {
            gather_columns(block, layers[0].inputs, inputs, first);
            int64_t rows = block->panels * PANEL, count = least(BLOCK, inputs->rows - first);
            const float *features = kept_at(&work, inputs->rows, kept, n, first) + 2 * rows * work.sum;
            const float *last = features - 2 * rows * layers[depth - 1].outputs;
            for (int64_t h = 0; h < stack->heads; h++) {
                const Layer *head = &layers[depth + h];
                int64_t size = head->outputs;
                read_rows(block, grad_outputs[h] + (n * inputs->rows + first) * size, size, count, block->grad_before);
                if (!grad_last) dense_by_parameters(block, stack, head, n, block->grad_before, last, NULL, first > 0);
                dense_by_input(block, stack, head, n, 0, head->inputs, block->grad_before, h > 0, block->grad_layer);
            }
            for (int64_t l = depth - 1; l >= 0; l--) {
                int64_t size = layers[l].outputs * rows;
                features -= 2 * size;
                for (int64_t i = 0; i < size; i += LANES)
                    store(block->grad_layer + i, load(block->grad_layer + i) * load(features + size + i));
                const float *x = l ? features - 2 * rows * layers[l - 1].outputs : block->input;
                if (!grad_last)
                    dense_by_parameters(block, stack, &layers[l], n, block->grad_layer, x, l ? NULL : block->input_rows,
                                        first > 0);
                if (!l) break;
                dense_by_input(block, stack, &layers[l], n, 0, layers[l].inputs, block->grad_layer, 0, block->grad_before);
                float *swapped = block->grad_layer;
                block->grad_layer = block->grad_before;
                block->grad_before = swapped;
            }
            if (!grad_last) continue;
            int64_t width = inputs->parts[inputs->count - 1].width, start = layers[0].inputs - width;
            dense_by_input(block, stack, &layers[0], n, start, width, block->grad_layer, 0, block->grad_before);
            write_rows(block->grad_before, width, count, n > 0, grad_last + first * width);
        }
}
