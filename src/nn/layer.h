/* The layer contract. A layer is a table of functions (struct trm_layer_ops) and a record (struct trm_layer). It owns
 * no array: parameters, gradients, activations and workspace are intervals of the model's flat arrays and of its arena,
 * passed as device pointers.
 *
 * A model is built before any large allocation: create reads the arguments, shape infers the output shape and
 * declares parameters and workspace, shard (sharding.h) reduces the layer to one tensor-parallel rank's shard; then
 * arena_plan.h places the activations. Forward and backward run once per micro-batch.
 *
 * Letters in shape comments: B rows of the layer's input (samples), F features of a row, T positions of a sequence,
 * D features of a position, R = B T vectors of a sequence or B whole samples, C channels, H and W pixels, V classes or
 * vocabulary. Counts are in elements unless the name says bytes. One thread calls all functions of a layer.
 */
#pragma once

#include "core/device.h"
#include "nn/input.h"

TRM_BEGIN_DECLS

#define TRM_MAX_ARGUMENTS 8
#define TRM_MAX_PARAMETERS 4 /* of one layer */

/* The words after a layer's name: positional ones and key=value ones. */
struct trm_arguments {
  int count;
  struct {
    const char *key; /* NULL: positional */
    const char *value;
  } item[TRM_MAX_ARGUMENTS];
};

enum trm_init { TRM_INIT_ZERO, TRM_INIT_ONE, TRM_INIT_UNIFORM, TRM_INIT_NORMAL };

/* Initial weights of layers with products, K inputs and N outputs each (argument init). Biases start at 0, except by
 * TRM_RULE_DEFAULT. */
enum trm_init_rule {
  TRM_RULE_DEFAULT, /* weight and bias uniform in +-1/sqrt(K), as torch.nn.Linear and Conv2d */
  TRM_RULE_HE,      /* normal, deviation sqrt(2 / K) (He et al. 2015) */
  TRM_RULE_XAVIER,  /* uniform in +-sqrt(6 / (K + N)) (Glorot & Bengio 2010) */
  TRM_RULE_GPT2,    /* normal, deviation 0.02 / sqrt(residuals) (Radford et al. 2019) */
};

/* The elements that a rank holds of a whole tensor (outer, extent, inner): [low, high) of the middle dimension. */
struct trm_slice {
  size_t outer, extent, inner;
  size_t low, high;
};

/* One parameter tensor, or this rank's shard of it: an interval of the flat arrays. */
struct trm_parameter {
  char name[64];          /* "layer3.weight": the position counts the model's items from 0 */
  int number;             /* among the parameters of the whole model, from 0 */
  struct trm_shape shape; /* of the shard */
  struct trm_slice slice; /* count = outer * (high - low) * inner */
  size_t offset, count;   /* in the flat arrays */
  bool gradient_partial;  /* its gradient is a partial sum: needs an all-reduce over the tensor axis */
  bool primary;           /* one of the ranks with the same elements: counts in norms, writes checkpoints */
  enum trm_init init;
  float scale;            /* bound of the uniform, deviation of the normal distribution */
  bool statistic;         /* measured, not trained: g is the moment of the batch (nn/optimizer.h) */
  float momentum;         /* of a statistic: the weight of a batch's moment */
  bool hidden;            /* a hidden matrix of the whole model (nn/optimizer.h, muon) */
  bool product;           /* a product reads it, as values */
  bool adapter;           /* of a low-rank adapter: model.freeze does not name it, and files of weights may lack it */
  bool frozen;            /* neither trained nor in the flat arrays: offset is among the model's frozen values, and g
                             takes what a kernel computes along with other gradients, which nobody reads */
  float *frozen_w;        /* (count) host, of a frozen one: its values; set by trm_model_bind */
  float *w, *g;           /* (count) device; set by trm_model_bind, or per pass by a trm_param_provider */
  const void *values;     /* (count) device: w in the type of values; in float32 it is w */
};

/* The work of a layer. */
struct trm_cost {
  double flop;  /* forward, per row of the input; backward counts twice */
  double bytes; /* of activations read and written, forward, per row of the input; of a slot: as if in float32 */
};

/* In place of a layer's index: */
enum { TRM_FROM_BATCH = -1, TRM_FROM_NONE = -2 };

/* Sharding of a value over the ranks of the tensor axis (sharding.h). */
enum trm_sharding_kind {
  TRM_REPLICATED,          /* every rank has all of it, and all of its gradient */
  TRM_SHARDED_BY_FEATURE,  /* each rank has a part of the features of each row, of sequences of each position */
  TRM_SHARDED_BY_POSITION, /* of sequences: each rank has an equal run of positions */
};
/* A value and its distribution over the tensor axis. */
struct trm_sharding {
  enum trm_sharding_kind kind;
  size_t groups, units, width; /* by feature: (groups, units, width) features, each rank has an interval of the units */
};

/* The operation of a reshard layer on a value in one direction (layers/reshard.c). */
enum trm_reshard {
  TRM_RESHARD_NONE,           /* a copy */
  TRM_RESHARD_ALL_REDUCE,     /* partial sums to the replicated sum */
  TRM_RESHARD_ALL_GATHER,     /* shards to the replicated value */
  TRM_RESHARD_SLICE,          /* replicated to this rank's shard; local */
  TRM_RESHARD_REDUCE_SCATTER, /* partial sums to this rank's shard of the sum */
};

/* Work of neighboring layers that a layer's call includes, by a fused kernel (core/kernels.h); fields that are 0: none.
 * The model sets them before each call (fusion.h). */
struct trm_fused {
  /* with ops->fuses_relu: forward: z = relu(y + addend) in place of y; backward: dy is that of z */
  bool relu;
  const void *addend;              /* NULL: none */
  /* with ops->fuses_activation */
  enum trm_activation activation;
  void *z;                         /* forward: the activation's output, of y */
  bool through;                    /* backward: x is the activation's output, and dx the gradient of its input */
  const void *u;                   /* that input; NULL: the activation does not keep it */
  /* with ops->fuses_sum */
  struct trm_add_norm_forward sum; /* forward: x is sum.s, which this call makes; without norm */
  /* of conv2d */
  struct trm_conv2d_fused chain;   /* forward: that call but for x, w and bias; conv.y NULL: none (nn/conv_chain.h) */
  /* with ops->fuses_sum, too */
  const void *grad_other;          /* backward: grad_sum = dx + grad_other; dx need not be written */
  void *grad_sum;
};

struct trm_axis;
struct trm_graph;
struct trm_shard_request;
struct trm_layer_ops;

/* The fields that all kinds of layers have; those of one kind are in its settings. */
struct trm_layer {
  const struct trm_layer_ops *ops;
  void *settings;          /* (ops->settings_bytes) zeroed before create, NULL if 0; owned by the layer */
  int number;              /* position in the model's text, from 0 */
  int global_index;        /* position among the layers of the whole model, from 0 */
  /* the value that it reads */
  int from;                /* index of the layer whose output it is, TRM_FROM_BATCH, or TRM_FROM_NONE: it comes from
                              another rank (partition.h) */
  int addend;              /* of an add: the layer of the second value; TRM_FROM_NONE for all other kinds */
  struct trm_shape in, out; /* of one row */
  bool in_last_allowed, out_last_allowed; /* what it reads, and writes, may have the channels last: set by create, of
                              the whole model (channels_last.h) */
  bool in_last, out_last;  /* it has: set by bind */
  enum trm_value_type values; /* type of the values that it reads and writes, and of their gradients */
  bool sparse_input;       /* reads the batch, and the batch is of CSR rows */
  bool token_input;        /* reads the batch, and the batch is of tokens */
  size_t context;          /* of a model of tokens: its positions, of which a pass has in.size[0], T; else 0 */
  size_t classes;          /* of the data set; of tokens their vocabulary V */
  /* rows */
  int rows_from;           /* the layer that determines the rows of its output, or TRM_FROM_BATCH: those of the batch;
                              an index among the layers of the whole model. Set before shape: ops->output_rows is NULL:
                              as its input's, else itself; shape may set TRM_FROM_BATCH */
  size_t batch_sums;       /* sums over the batch that it needs, see ops->batch_sums; 0: none. Set by shape and shard */
  size_t rows, output_rows; /* B of its input, of its output, in this pass; set by the model before each pass */
  /* tied weights */
  bool tie_weights;        /* needs `tied`: set by create */
  struct trm_layer *tied;  /* the earlier layer whose weight it uses, NULL: none; its backward adds to that gradient */
  bool shared;             /* a later layer is tied to this one, whose weight gradient includes its part */
  float *tied_gradient;    /* device; of both tied layers: sum of the later one's contributions over micro-batches.
                              NULL: added to the weight's gradient */
  /* gradients */
  bool is_output;          /* the last layer of the whole model */
  bool needs_dy;           /* false: no trained parameters at or before it, so backward skips it, but for: */
  bool needs_moments;      /* with !needs_dy: backward computes the moments of its statistics, dy and dx are NULL */
  bool needs_dx;           /* false: the gradient of its input is not used */
  bool adapted;            /* a low-rank adapter is beside it (layers.h): its own parameters are not trained */
  bool bias_removed;       /* bias omitted: the next layer removes any constant (trm_model_log) */
  /* evaluation position by position (decoder.h) */
  void *cache;             /* of a layer with ops->caches: (context, in.size[1]) values that it has read of the row's
                              positions before pass->past, to which it adds; device, not owned; NULL: none */
  /* parameters and memory: set by shape */
  struct trm_parameter parameter[TRM_MAX_PARAMETERS];
  int parameters;
  size_t low, high;        /* the interval of its trained parameters in the flat arrays; set by the model */
  size_t workspace;        /* floats per input row, kept from forward to backward */
  size_t workspace_fixed;  /* floats independent of rows, kept likewise; precede the rows' part */
  size_t scratch;          /* floats during one call, independent of rows */
  float *scratch_at;       /* (scratch) device; set by the model before each call */
  struct trm_fused fused;
  /* tensor parallelism (sharding.h) */
  int tensor_rank, tensor_size; /* place in the axis, its size; size 0: not sharded */
  struct trm_slice slice;  /* output_sharded: this rank's slice of an output row; reshard layers: of the value */
  bool output_sharded;
  bool output_partial;     /* its output is a partial sum: needs an all-reduce over the tensor axis */
  bool grad_input_partial; /* dx is a partial sum: the model makes the all-reduce over the tensor axis */
};

/* Sums n values over the ranks that compute parts of one batch at the same time. Collective over them. */
typedef void trm_reduce(void *context, double *values, size_t n);

/* The flat arrays where no rank has them whole (FSDP, ZeRO). A pass acquires a layer's interval before it computes the
 * layer and releases it after: in between parameter->w, and in backward parameter->g, are valid. The interval of a tied
 * weight is acquired with the layer that uses it, too; the interval of all statistics for the whole pass.
 *
 * acquire (all-gather) and release (in backward: reduce-scatter) may be collective over the data axis: its ranks then
 * make the same passes in the same order, if need be without rows. A pass's `ready` is called before the interval is
 * released, for each micro-batch, and may still change the gradient.
 */
enum trm_acquire_mode {
  TRM_ACQUIRE_EVALUATE,
  TRM_ACQUIRE_FORWARD,
  TRM_ACQUIRE_RECOMPUTE, /* a second forward just before the backward of the layer's segment (arena_plan.h) */
  TRM_ACQUIRE_BACKWARD,  /* at release the gradient is complete */
  TRM_ACQUIRE_TIED,      /* backward of a layer that uses the weight of another, whose own backward comes later */
};
struct trm_loss_call; /* nn/loss.h */
struct trm_param_provider {
  bool overwrites_gradient; /* each pass overwrites the gradients, as if beta were 0, and the provider accumulates;
                               false: gradients are whole arrays, with beta and ready as without a provider */
  /* *w, *g: element `low` of the weights and of the gradient, device; *g is NULL in forward */
  void (*acquire)(void *context, size_t low, size_t high, enum trm_acquire_mode mode, float **w, float **g);
  void (*release)(void *context, size_t low, size_t high, enum trm_acquire_mode mode);
  void *context;
};

/* One pass over a batch. All pointers to arrays are device pointers. */
struct trm_pass {
  struct trm_device *device;
  const struct trm_input *input; /* the batch; a first layer reads it here if it is sparse or tokens, and x is NULL */
  bool training;                 /* dropout and batch statistics are on */
  size_t past;                   /* evaluation of one row of tokens: positions before its own, which are in caches */
  uint64_t seed;
  uint64_t first_row;            /* global index in the run of the batch's row 0: keys the dropout masks */
  struct trm_step *step;         /* device: first_row counts from the step's, its sums take the losses, and the passes
                                    read nothing back; NULL: first_row counts from 0, losses are returned */
  float beta;                    /* parameter gradients: 0 overwrites, 1 adds (accumulation) */
  bool more_passes;              /* another pass will add to these gradients (model.h: accumulates) */
  float scale;                   /* training: 1 / samples of the global batch; set by trm_model_train */
  double *auxiliary_loss;        /* host; forward adds its layer's auxiliary loss, summed over the samples of the batch;
                                    NULL: not needed, as in recomputation. The reported loss excludes it, to stay
                                    comparable with evaluation's */
  trm_reduce *reduce;            /* sums over all parts of this batch, and so over other ranks; NULL: there is no other
                                    part */
  void *reduce_context;
  struct trm_axis *tensor_axis;  /* ranks over which layers are sharded; NULL: layers are whole */
  const struct trm_param_provider *provider; /* NULL: the arrays are whole, as trm_model_bind got them */
  /* Called in forward before the elements [low, high) of whole weights are read; NULL: all are there. */
  void (*await_weights)(void *context, size_t low, size_t high);
  void *weights_context;
  /* Backward, optional: called when the gradients below element `high` are final, though the layer still reads its
   * weights, after each `part` elements of a large layer. NULL: not needed. */
  void (*part_ready)(void *context, size_t high);
  void *part_context;
  size_t part;
  void (*progress)(void *context); /* called between layers to progress messages; NULL: none */
  bool (*abandons)(void *context); /* called between layers: true ends the pass, whose results are of no use (training
                                      without a provider, lanes and graphs); NULL: every pass is wanted */
  void *abandons_context;
  int (*wait)(void *context);      /* in place of the device's sync, with progress; NULL: sync */
  void *progress_context;
  /* Called with each call of the loss, after it (nn/loss.h): reads the scores. May be collective over tensor_axis. NULL:
   * not needed. */
  void (*scored)(void *context, const struct trm_loss_call *call);
  void *scored_context;
  bool skipped;                  /* trm_evaluate takes the modeled time alone and leaves its sums 0 */
  bool weights_kept;             /* the weights are those of this model's last forward pass */
  double seconds_per_row;        /* modeled time, for evaluations on a network with slot compute (core/comm.h) */
};

/* The slots of one kind of layer. */
struct trm_layer_ops {
  const char *name;
  const char *usage; /* "linear UNITS [bias=yes|no]": for messages */
  size_t settings_bytes; /* of layer->settings */
  int variant;           /* distinguishes kinds that share functions */

  /* y (output_rows, out) from x (B, in), values of type layer->values. y may be x where in_place. work:
   * (workspace_fixed + B workspace), left as it is until backward. NULL: an add, the model does it. */
  void (*forward)(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y, float *work);
  /* dx (B, in) from dy (output_rows, out), and the parameters' gradients (beta of the pass). dx is NULL if !needs_dx.
   * x is valid if keeps_input, y if keeps_output; otherwise NULL. dx may be dy where in_place. dy NULL: for moments
   * alone (needs_moments), x and y are NULL, too. An auxiliary loss adds
   * pass->scale times its own gradient, to dx and to those of the parameters. */
  void (*backward)(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                   const void *dy, void *dx, float *work);

  /* Of layers that need sums over the whole batch (layer->batch_sums), where other passes compute parts of it at the
   * same time: with pass->reduce, which the layer does not call. batch_sums: this pass's sums, (layer->batch_sums),
   * from x or, before backward, x and dy, also without rows; dy is NULL before forward. take_batch_sums: keeps those of
   * all parts in work, which forward or backward then reads. NULL: it needs none. */
  void (*batch_sums)(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *dy, float *work,
                     double *sums);
  void (*take_batch_sums)(struct trm_layer *layer, const struct trm_pass *pass, bool backward, const double *sums,
                          float *work);

  /* For trm_layer_apply_forward and trm_layer_apply_backward alone: to from `from`, which is x or dy. */
  void (*apply)(const struct trm_layer *layer, const struct trm_pass *pass, bool backward, const void *from,
                void *to);

  /* Reads the arguments into the settings. Errors name the layer and the argument. NULL: it takes none. */
  int (*create)(struct trm_layer *layer, const struct trm_arguments *arguments);
  /* layer->in is set: sets out, workspace, parameters (trm_layer_add_parameter). Errors name the layer and the shapes.
   * NULL: out = in, of dense values. */
  int (*shape)(struct trm_layer *layer);
  /* Rows of the output for so many rows of the input; 0 for 0, and does not decrease with rows. batch_rows: rows of
   * the batch. NULL: as many. Values with other rows than the batch's cannot be cut by a pipeline nor be scores. */
  size_t (*output_rows)(const struct trm_layer *layer, size_t rows, size_t batch_rows);
  /* NULL: cost_per_value for each value of the input, by default one operation, one read and one write. Call it through
   * trm_layer_cost. */
  struct trm_cost (*cost)(const struct trm_layer *layer);
  struct trm_cost cost_per_value;
  /* Adds to the graph what forward computes in evaluation: the value of y from the value x (graph.h). NULL: the layer
   * cannot be exported; of an add the model does it. */
  int (*export_graph)(const struct trm_layer *layer, struct trm_graph *graph, int x);
  /* A position of its output depends on later positions of its input. NULL: no. */
  bool (*reads_ahead)(const struct trm_layer *layer);
  /* Omits the bias, which a later layer removes, and returns true; false if there is none or it was requested. Called
   * after shape. NULL: false. */
  bool (*remove_bias)(struct trm_layer *layer);

  /* Elements from a row of its output, and of that's gradient, to the next; of sequences from a position's. NULL: the
   * rows are packed. Only scores may lie apart, which the loss alone reads. */
  size_t (*output_ld)(const struct trm_layer *layer);
  /* Its vectors are independent, and it has neither workspace nor scratch: forward and backward may be called on some
   * of them, as rows of their own (model.h: loss_chunk). */
  bool by_vector;
  bool keeps_input, keeps_output; /* what backward reads: decides what the arena keeps */
  bool in_place;                  /* forward may overwrite its input, backward its dy */
  bool takes_bf16;                /* forward and backward work on values of either type; false: of float32 alone */
  bool caches;                    /* its output depends on earlier positions: layer->cache */
  bool removes_bias;              /* a constant added to a channel of its input does not change its output */
  bool fuses_activation, fuses_relu, fuses_sum; /* forward and backward heed those parts of layer->fused */

  /* Tensor parallelism (sharding.h). preferred_sharding: of its input, if readers prefer *out for its output; NULL:
   * replicated. shard: reduces the layer to this rank's shard; NULL: every rank computes the whole layer. */
  struct trm_sharding (*preferred_sharding)(const struct trm_layer *layer, const struct trm_sharding *out);
  int (*shard)(struct trm_layer *layer, struct trm_shard_request *request);
  enum trm_reshard reshard[2]; /* of a reshard layer: in forward, in backward; of all others NONE */
};

/* -- kinds of layers */

/* Adds a kind from outside the library, for the whole process: before any model is made, and from one thread. ops stays
 * the caller's and lives as long as the process. Fails if the name is taken or a required function is missing. */
int trm_layer_register(const struct trm_layer_ops *ops);
/* Returns the kind of that name, or NULL. */
const struct trm_layer_ops *trm_layer_find(const char *name);
/* Kind i, from 0, of the library's and then of the registered ones; NULL beyond the last. */
const struct trm_layer_ops *trm_layer_kind(int i);

/* -- layers */

/* Makes *to a deep copy. */
void trm_layer_copy(struct trm_layer *to, const struct trm_layer *from);
/* Releases an array of layers with their settings; NULL is allowed. */
void trm_layers_free(struct trm_layer *layer, int layers);
/* Sets rows and output_rows of layers [first, last) for a pass over a batch of so many rows. */
void trm_layers_set_rows(struct trm_layer *layer, int first, int last, size_t batch_rows);
struct trm_cost trm_layer_cost(const struct trm_layer *layer); /* with values of its type */
struct trm_cost trm_layers_cost(const struct trm_layer *layer, int first, int last); /* sum over [first, last) */
/* A cost slot for layers that move or rename values only: 0. */
struct trm_cost trm_layer_cost_none(const struct trm_layer *layer);
/* forward and backward slots of layers whose backward treats dy as forward treats x, or inversely: slot apply. */
void trm_layer_apply_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y,
                             float *work);
void trm_layer_apply_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                              const void *dy, void *dx, float *work);
/* "layer 3 (linear)": for messages; trm_context_text. */
const char *trm_layer_text(const struct trm_layer *layer);
/* The vectors that a layer reads in this pass: of sequences each position, R = B T of D values; otherwise R = B whole
 * rows. */
size_t trm_layer_rows(const struct trm_layer *layer);
size_t trm_layer_width(const struct trm_layer *layer); /* values of such a vector */
/* Of a row of its output: the vectors (of sequences the positions, otherwise 1), and the elements from one to the next;
 * together what the row takes in memory. */
size_t trm_layer_output_vectors(const struct trm_layer *layer);
size_t trm_layer_output_ld(const struct trm_layer *layer);
size_t trm_layer_output_elements(const struct trm_layer *layer);
/* The weight that its product reads as values, its own or that of the layer it is tied to; NULL: none. */
struct trm_parameter *trm_layer_product_weight(const struct trm_layer *layer);

/* -- for shape */

/* Declares the next parameter of the layer. */
void trm_layer_add_parameter(struct trm_layer *layer, const char *name, const struct trm_shape *shape,
                             enum trm_init init, float scale);
int trm_layer_require_dense(const struct trm_layer *layer);    /* refuses sparse rows and tokens */
int trm_layer_require_values(const struct trm_layer *layer);   /* refuses tokens */
int trm_layer_require_sequence(const struct trm_layer *layer); /* refuses all but sequences */
int trm_layer_require_image(const struct trm_layer *layer);    /* refuses all but images (C, H, W) */
/* Of layers with a window over images: completes the window, and sets layer->out with the input's channels. */
int trm_layer_shape_window(struct trm_layer *layer, struct trm_window2d *window);

/* Settings of layers with products; the first member of their settings. */
struct trm_weight_settings {
  size_t units;   /* N, of this rank */
  bool bias;
  bool bias_asked; /* bias=yes was given: remove_bias keeps it */
  enum trm_init_rule init_rule;
  size_t residuals;
};
/* Reads bias= (unchanged if absent), init= and residuals=. */
int trm_argument_weights(struct trm_layer *layer, const struct trm_arguments *arguments,
                         struct trm_weight_settings *weights);
/* Declares "weight" (N, ...) and, if weights->bias, "bias" (N); each output has k inputs, each input n outputs. */
void trm_layer_add_weights(struct trm_layer *layer, const struct trm_weight_settings *weights,
                           const struct trm_shape *weight, size_t k, size_t n);
/* A remove_bias slot for layers whose settings begin with trm_weight_settings. */
bool trm_layer_remove_bias(struct trm_layer *layer);

/* Returns ", did you mean 'KNOWN'?" for the word of `known` (ends with NULL) nearest to an unknown one; "": none is. */
const char *trm_did_you_mean(const char *word, const char *const *known);

/* -- for create: arguments by position or key */

/* Missing and malformed arguments are errors that quote ops->usage. A position below 0: by key alone. Reals lie in
 * [low, high), sizes in [1, 2^31 - 1]. */
int trm_argument_size(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, size_t *value); /* leaves *value if absent and *value is not 0 */
int trm_argument_real(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, double low, double high, float *value); /* leaves *value if absent */
int trm_argument_bool(const struct trm_layer *layer, const struct trm_arguments *arguments, const char *key,
                      bool *value); /* leaves *value if absent */
/* Takes the single positional word `word` for true; any other is an error. */
int trm_argument_word(const struct trm_layer *layer, const struct trm_arguments *arguments, const char *word,
                      bool *value);
int trm_argument_pair(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, size_t min, size_t pair[2]); /* "3" or "3x5"; missing as with sizes */
/* Refuses words beyond the first `positions` and keys not in `keys` (NULL-terminated; NULL: no keys). */
int trm_argument_reject_unknown(const struct trm_layer *layer, const struct trm_arguments *arguments, int positions,
                                const char *const *keys);

TRM_END_DECLS
