/* Batch normalization before each layer of a stack of several networks, as in networks/critics/normalization.py, with
 * the pass in which it learns its moments, and that pass's way back. The moments are those of all rows, so that these
 * passes go layer by layer, over all blocks of rows. Numbers of a layer lie in panels, those of a block together. */
typedef struct {
    int64_t weight, bias;   /* places of [networks][features] */
    float *mean, *variance; /* the running moments, [networks][features] */
    int64_t *batches;       /* that these have seen */
} Norm;
typedef struct { /* of a feature: x̂ = (x - center) inverse, and what the layer is put in is x̂ scale + offset */
    float center, inverse, ratio, shift, scale, offset; /* ratio, shift: r and d of renormalization */
} Normalizer;
typedef struct { /* what these passes work with */
    float *kept;             /* of each network and layer, and each row and input: x̂, and the slope of what gave x */
    Normalizer *normalizers; /* of each network, layer and input */
    float *sums;             /* [widest][2][LANES] */
    float *grads[2];         /* gradients by what a layer puts out, and by what it is put in; [rows][widest] each */
} Joint;

static const float NORM_EPSILON = 1e-3f, NEWEST = 0.01f, LARGEST_RATIO = 3.0f, LARGEST_SHIFT = 5.0f;
enum { BATCHES_BEFORE_RENORMALIZATION = 100000 };

static float bounded(float x, float a, float b) { return x < a ? a : x > b ? b : x; } /* NaN stays */

/* As torch.lerp. */
static float between(float a, float b, float t) { return t < 0.5f ? a + t * (b - a) : b - (b - a) * (1 - t); }

/* Sets rows that fill up to 0. */
static void clear_rows(float *x, int64_t features, int64_t rows) {
    for (int64_t r = rows; r < padded(rows); r++)
        for (int64_t f = 0; f < features; f++) x[(r / PANEL * features + f) * PANEL + r % PANEL] = 0;
}

/* Adds Σ a and Σ a b over rows to what is there, for each feature and lane. */
static void add_products(int64_t panels, int64_t features, const float *a, const float *b, float *sums) {
    for (int64_t p = 0; p < panels; p++)
        for (int64_t f = 0; f < features; f++, a += PANEL, b += PANEL) {
            Vector sum = load(sums + 2 * f * LANES), product = load(sums + (2 * f + 1) * LANES);
            for (int64_t j = 0; j < PANEL; j += LANES) {
                sum += load(a + j);
                product += load(a + j) * load(b + j);
            }
            store(sums + 2 * f * LANES, sum);
            store(sums + (2 * f + 1) * LANES, product);
        }
}
static float mean_of(const float *sums, int64_t rows) { return total(load(sums)) / (float)rows; }

/* y = (x - center) inverse */
static void standardize(int64_t panels, int64_t features, const Normalizer *by, const float *x, float *y) {
    for (int64_t p = 0; p < panels; p++)
        for (int64_t f = 0; f < features; f++, x += PANEL, y += PANEL)
            for (int64_t j = 0; j < PANEL; j += LANES) store(y + j, (load(x + j) - by[f].center) * by[f].inverse);
}

/* y = x̂ scale + offset */
static void scale_standardized(int64_t panels, int64_t features, const Normalizer *by, const float *x, float *y) {
    for (int64_t p = 0; p < panels; p++)
        for (int64_t f = 0; f < features; f++, x += PANEL, y += PANEL)
            for (int64_t j = 0; j < PANEL; j += LANES) store(y + j, load(x + j) * by[f].scale + by[f].offset);
}

/* What a network's layer is put in, x, goes to x̂; the running moments move towards those of x. Rows that fill up are 0
 * before and after. The mean is subtracted before anything is squared. */
static void learn_moments(const Stack *stack, const Norm *norm, int64_t network, int64_t features, int64_t rows,
                          float *x, float *sums, Normalizer *to) {
    const int64_t panels = padded(rows) / PANEL, first = network * features, bytes = 2 * features * LANES * 4;
    const float *weight = stack->theta + norm->weight + first, *bias = stack->theta + norm->bias + first;
    float *mean = norm->mean + first, *variance = norm->variance + first;
    const int64_t batches = *norm->batches;
    float newest = 1.0f / (float)(batches + 1);
    if (newest < NEWEST) newest = NEWEST;
    memset(sums, 0, (size_t)bytes);
    add_products(panels, features, x, x, sums);
    for (int64_t f = 0; f < features; f++)
        to[f] = (Normalizer){.center = mean_of(sums + 2 * f * LANES, rows), .inverse = 1, .ratio = 1};
    standardize(panels, features, to, x, x);
    clear_rows(x, features, rows);
    memset(sums, 0, (size_t)bytes);
    add_products(panels, features, x, x, sums);
    for (int64_t f = 0; f < features; f++) {
        float center = mean_of(sums + 2 * f * LANES, rows); /* what rounding left of the mean */
        float own_mean = to[f].center + center;
        float own_variance = mean_of(sums + (2 * f + 1) * LANES, rows) - center * center;
        float deviation = __builtin_sqrtf(own_variance + NORM_EPSILON);
        to[f].center = center;
        to[f].inverse = 1 / deviation;
        if (batches >= BATCHES_BEFORE_RENORMALIZATION) {
            float scale = 1 / __builtin_sqrtf(variance[f] + NORM_EPSILON);
            to[f].ratio = bounded(deviation * scale, 1 / LARGEST_RATIO, LARGEST_RATIO);
            to[f].shift = bounded((own_mean - mean[f]) * scale, -LARGEST_SHIFT, LARGEST_SHIFT);
        }
        to[f].scale = weight[f] * to[f].ratio;
        to[f].offset = bias[f] + weight[f] * to[f].shift;
        mean[f] = between(mean[f], own_mean, newest);
        variance[f] = between(variance[f], own_variance, newest);
    }
    standardize(panels, features, to, x, x);
    clear_rows(x, features, rows);
}

/* output: of the one head, [networks][rows][its outputs]. */
static void joint_forward(const Stack *stack, const Norm *norms, const Inputs *inputs, const Joint *joint,
                          float *output) {
    Work work;
    make_work(&work, stack, inputs->rows);
    Block *block = &work.block;
    const Layer *layers = stack->layers;
    const int64_t rows = padded(inputs->rows), depth = stack->depth;
    float *x = joint->kept;
    Normalizer *own = joint->normalizers;
    for (int64_t n = 0; n < stack->networks; n++) {
        for (int64_t first = 0; first < inputs->rows; first += BLOCK) {
            gather_columns(block, layers[0].inputs, inputs, first);
            size_t numbers = (size_t)(block->panels * PANEL * layers[0].inputs);
            memcpy(x + first * layers[0].inputs, block->input, numbers * sizeof(float));
        }
        for (int64_t l = 0; l <= depth; l++) {
            int64_t features = layers[l].inputs, size = layers[l].outputs;
            Matrix weight = weight_of(stack, &layers[l], n);
            float *after = x + 2 * rows * features, *slopes = after + rows * size;
            learn_moments(stack, &norms[l], n, features, inputs->rows, x, joint->sums, own);
            for (int64_t first = 0; first < inputs->rows; first += BLOCK) {
                int64_t count = least(BLOCK, inputs->rows - first);
                block->panels = padded(count) / PANEL;
                float *y = l < depth ? after + first * size : block->grad_layer;
                scale_standardized(block->panels, features, own, x + first * features, block->grad_before);
                multiply(block, &weight, stack->theta + layers[l].bias + n * size, 0, block->grad_before, y);
                if (l < depth) activate(stack->relu != 0, size * block->panels * PANEL, y, slopes + first * size);
                else write_rows(y, size, count, 0, output + (n * inputs->rows + first) * size);
            }
            if (l < depth) {
                clear_rows(after, size, inputs->rows);
                clear_rows(slopes, size, inputs->rows);
            }
            x = after;
            own += features;
        }
    }
    for (int64_t l = 0; l <= depth; l++) ++*norms[l].batches;
}

/* From the gradient by what joint_forward gave for the first rows, [networks][first_rows][outputs], that by all
 * parameters. ∂x = (g - mean g - x̂ mean g x̂) scale / σ, where g is the gradient by what a layer is put in. */
static void joint_backward(const Stack *stack, const Norm *norms, int64_t count, const Joint *joint, int64_t first_rows,
                           const float *grad_output) {
    Work work;
    make_work(&work, stack, count);
    Block *block = &work.block;
    const Layer *layers = stack->layers;
    const int64_t rows = padded(count), depth = stack->depth, wide = layers[0].inputs + work.sum;
    for (int64_t n = 0; n < stack->networks; n++) {
        float *x = joint->kept + (n + 1) * 2 * rows * wide, *grad_y = joint->grads[0], *grad_x = joint->grads[1];
        const Normalizer *own = joint->normalizers + (n + 1) * wide;
        for (int64_t l = depth; l >= 0; l--) {
            int64_t features = layers[l].inputs, size = layers[l].outputs;
            const float *slopes = x + rows * size;
            x -= 2 * rows * features;
            own -= features;
            memset(joint->sums, 0, (size_t)(2 * features * LANES) * sizeof(float));
            for (int64_t first = 0; first < count; first += BLOCK) {
                float *grad = grad_y + first * size, *grad_input = grad_x + first * features;
                block->panels = padded(least(BLOCK, count - first)) / PANEL;
                if (l == depth) {
                    int64_t some = most(0, least(BLOCK, first_rows - first));
                    read_rows(block, grad_output + (n * first_rows + least(first, first_rows)) * size, size, some, grad);
                } else for (int64_t i = 0; i < size * block->panels * PANEL; i += LANES)
                    store(grad + i, load(grad + i) * load(slopes + first * size + i));
                scale_standardized(block->panels, features, own, x + first * features, block->grad_before);
                dense_by_parameters(block, stack, &layers[l], n, grad, block->grad_before, NULL, first > 0);
                dense_by_input(block, stack, &layers[l], n, 0, features, grad, 0, grad_input);
                add_products(block->panels, features, grad_input, x + first * features, joint->sums);
            }
            float *by_weight = stack->gradient + norms[l].weight + n * features;
            float *by_bias = stack->gradient + norms[l].bias + n * features;
            for (int64_t f = 0; f < features; f++) {
                by_bias[f] = total(load(joint->sums + 2 * f * LANES));
                float product = total(load(joint->sums + (2 * f + 1) * LANES));
                by_weight[f] = own[f].ratio * product + own[f].shift * by_bias[f];
            }
            if (!l) break;
            for (int64_t i = 0; i < rows * features; i += PANEL) {
                int64_t f = i / PANEL % features;
                float mean = mean_of(joint->sums + 2 * f * LANES, count);
                float product = mean_of(joint->sums + (2 * f + 1) * LANES, count), slope = own[f].scale * own[f].inverse;
                for (int64_t j = i; j < i + PANEL; j += LANES)
                    store(grad_x + j, (load(grad_x + j) - mean - load(x + j) * product) * slope);
            }
            float *swapped = grad_y;
            grad_y = grad_x;
            grad_x = swapped;
        }
    }
}

/* A stack that does what this one does where its inputs are normalized by the running moments, which are constants: with
 * s = weight / σ and t = bias - mean s, its layers have the weights s W and the biases b + t W. theta: for its
 * parameters. It has no gradient. */
static Stack folded(const Stack *stack, const Norm *norms, float *theta) {
    Stack made = *stack;
    made.theta = theta;
    made.gradient = NULL;
    for (int64_t n = 0; n < stack->networks; n++)
        for (int64_t l = 0; l <= stack->depth; l++) {
            const Layer *layer = &stack->layers[l];
            const int64_t inputs = layer->inputs, outputs = layer->outputs;
            float *bias = theta + layer->bias + n * outputs;
            memcpy(bias, stack->theta + layer->bias + n * outputs, (size_t)outputs * sizeof(float));
            for (int64_t i = 0; i < inputs; i++) {
                const int64_t f = n * inputs + i;
                const float *weight = stack->theta + layer->weight + f * outputs;
                float *to = theta + layer->weight + f * outputs;
                float scale = stack->theta[norms[l].weight + f] / __builtin_sqrtf(norms[l].variance[f] + NORM_EPSILON);
                float offset = stack->theta[norms[l].bias + f] - norms[l].mean[f] * scale;
                for (int64_t o = 0; o < outputs; o++) {
                    to[o] = scale * weight[o];
                    bias[o] += offset * weight[o];
                }
            }
        }
    return made;
}
