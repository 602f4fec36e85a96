/* The layer contract. A layer is a row of functions and a small record; it owns no array: parameters, gradients,
 * activations and workspace are intervals of the model's flat arrays and arena, handed in as device pointers.
 *
 * A model is built in three passes, all before any memory is taken: create (read the arguments), shape (output shape,
 * parameters, workspace), plan (nn/model.c places activations). Then forward and backward run per micro-batch.
 */
#ifndef TRM_NN_LAYER_H
#define TRM_NN_LAYER_H

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

/* Initial weights of layers with products, K inputs and N outputs each (argument init). All biases but the first rule's
 * are 0. */
enum trm_init_rule {
  TRM_RULE_DEFAULT, /* weight and bias uniform in +-1/sqrt(K), as torch.nn.Linear and Conv2d */
  TRM_RULE_HE,      /* normal, deviation sqrt(2 / K) (He et al. 2015) */
  TRM_RULE_XAVIER,  /* uniform in +-sqrt(6 / (K + N)) (Glorot & Bengio 2010) */
  TRM_RULE_GPT2,    /* normal, deviation 0.02, over sqrt(residuals) (Radford et al. 2019) */
};

/* Which elements of a whole tensor (outer, whole, inner) a rank holds: [low, high) of the middle dimension. */
struct trm_slice {
  size_t outer, extent, inner;
  size_t low, high;
};

/* One parameter tensor, or the part of it that this rank holds: an interval of the flat arrays. */
struct trm_parameter {
  char name[64];          /* "layer3.weight": the position counts the model's items from 0 */
  int number;             /* among the parameters of the whole model, from 0 */
  struct trm_shape shape; /* of the part */
  struct trm_slice slice; /* count = outer * (high - low) * inner */
  size_t offset, count;   /* elements, in the flat arrays */
  bool gradient_partial;           /* its gradient is one summand: the ranks of the tensor axis have the others */
  bool primary;           /* of all ranks that hold the same elements one counts them: in norms, in checkpoints */
  enum trm_init init;
  float scale;            /* bound of the uniform, deviation of the normal */
  bool statistic;         /* measured, not trained: its g is what is to be added to it (model.h) */
  float *w, *g;           /* device; set by trm_model_bind */
};

struct trm_cost {
  double flop;  /* per sample, forward; backward counts twice unless the layer says otherwise */
  double bytes; /* per sample, forward, activations moved */
};

/* In place of a layer's index: */
enum { TRM_FROM_BATCH = -1, TRM_FROM_NONE = -2 };

/* How a value lies on the ranks of the tensor axis (sharding.h). */
enum trm_sharding_kind {
  TRM_REPLICATED, /* all of it on every rank, and of its gradient, too */
  TRM_SHARDED_BY_FEATURE, /* each rank has a part of the features: of a sample's, of a sequence's positions' */
  TRM_SHARDED_BY_POSITION, /* of sequences: each rank has an equal run of positions */
};
struct trm_sharding {
  enum trm_sharding_kind kind;
  size_t groups, units, width; /* FEATURES: (groups, units, width) values, each rank has an interval of the units */
};

/* What a layer that moves values between the ranks of the tensor axis does with them. */
enum trm_reshard {
  TRM_RESHARD_NONE,
  TRM_RESHARD_ALL_REDUCE, /* of all ranks' summands */
  TRM_RESHARD_ALL_GATHER, /* all parts */
  TRM_RESHARD_SLICE, /* this rank's part of what it has */
  TRM_RESHARD_REDUCE_SCATTER, /* this rank's part of the sum */
};

struct trm_axis;

struct trm_graph;
struct trm_shard_request;
struct trm_layer_ops;
struct trm_layer {
  const struct trm_layer_ops *ops;
  int number;              /* position in the model's text, from 0 */
  int global_index;               /* position among the layers of the whole model, from 0 */
  int from;                /* index of the layer whose output it reads, or TRM_FROM_BATCH; TRM_FROM_NONE: its value
                              comes from another rank (nn/partition.h) */
  int addend;                /* the second one of an add, whose output is the sum; TRM_FROM_NONE for all other layers */
  struct trm_shape in, out;
  bool sparse_input;       /* reads the batch, and that is of CSR rows */
  bool token_input;        /* reads the batch, and that is of tokens */
  size_t classes;          /* of the data set: of tokens their vocabulary */
  bool tie_weights;               /* asks for `tied`: set by create */
  struct trm_layer *tied;  /* the earlier layer whose weight it uses, NULL: none; its backward adds to that gradient */
  bool shared;             /* a later layer is tied to this one: its weight's gradient holds that one's part already */
  float *tied_gradient; /* of both layers that are tied: device, where the later one sums up its part of the gradient
                              over micro-batches; NULL: in the weight's gradient itself */
  bool is_output;             /* the last layer of the whole model */
  bool needs_dy;           /* false: neither it nor what it reads has parameters, backward leaves it out */
  bool needs_dx;           /* false: what it reads has no use for the gradient */
  struct trm_parameter parameter[TRM_MAX_PARAMETERS];
  int parameters;
  size_t low, high;        /* the interval of its trained parameters in the flat arrays */
  size_t workspace;        /* floats of arena a forward/backward pair needs per row (kept in between); set by shape */
  size_t workspace_fixed;  /* the same, whatever the rows: in front of the rows' part; set by shape */
  size_t scratch;          /* floats of arena for the time of one call, whatever the rows; set by shape */
  float *scratch_at;       /* device, (scratch); set by the model before each call */
  /* the layer's own small settings */
  size_t units;
  float rate;
  bool bias, causal;
  size_t heads, residuals, groups;
  float epsilon, base;
  struct trm_window2d window;
  bool sync;
  double statistics_count;            /* values a channel in the batch of the last forward pass */
  /* of a model that is divided over the tensor axis (sharding.h) */
  int tensor_rank, tensor_size;         /* place in the axis, ranks of it; parts 0: not divided */
  struct trm_slice slice;  /* divided: what of a sample's whole output is here; of a reshard layer: what it moves */
  bool output_sharded;            /* its output is a part */
  bool output_partial;               /* its output is one summand, the other ranks have the others */
  bool grad_input_partial;               /* what backward gives is one summand: the model adds the others' */
  enum trm_reshard reshard[2];   /* in forward, in backward */
  enum trm_init_rule init_rule;
  enum trm_activation activation;
};

/* Sums n values over the ranks that compute parts of one batch at the same time. Collective among them. */
typedef void trm_reduce(void *context, double *values, size_t n);

/* Who has the flat arrays where no rank has them whole. A pass takes a layer's interval before it computes the layer,
 * and gives it back after: in between parameter->w, and in backward ->g, are valid. That of a tied weight is taken with
 * that of the layer that uses it, and the interval of all statistics is taken for the whole pass.
 *
 * Ranks may have to work together for it, those of the data axis: they make the same passes in the same order, if need
 * be without rows. anew: gradients begin anew with each pass, as if beta were 0, and the parameter provider adds them up. A pass's
 * `ready` is called before the interval is given back, and may still change the gradient: so it is for each
 * micro-batch.
 */
enum trm_acquire_mode {
  TRM_ACQUIRE_EVALUATE,
  TRM_ACQUIRE_FORWARD,
  TRM_ACQUIRE_RECOMPUTE, /* forward recompute, just before backward of a few layers that this one is among (recompute.h) */
  TRM_ACQUIRE_BACKWARD, /* given back: the gradient is complete */
  TRM_ACQUIRE_TIED, /* backward of a layer that uses the weight of another, whose own backward is still to come */
};
struct trm_param_provider {
  bool overwrites_gradient; /* false: the gradients are there as a whole, beta and ready are as ever */
  /* *w: element `low` of the weights, *g: of the gradient, NULL in forward; device */
  void (*acquire)(void *context, size_t low, size_t high, enum trm_acquire_mode mode, float **w, float **g);
  void (*release)(void *context, size_t low, size_t high, enum trm_acquire_mode mode);
  void *context;
};

/* What the arrays are at one pass. Device pointers; B = input->rows. */
struct trm_pass {
  struct trm_device *device;
  const struct trm_input *input; /* the batch (the first layer reads it; x is then NULL if it is sparse or tokens) */
  bool training;                 /* dropout and batch statistics on */
  uint64_t seed;
  uint64_t first_row;            /* global position in the run of row 0: keys the dropout masks */
  float beta;                    /* parameter gradients: 0 overwrite, 1 add (accumulation) */
  bool more_passes;                     /* another pass will add to these gradients (model.h: accumulates) */
  float scale;                   /* training: 1 / samples of the global batch; set by trm_model_train */
  trm_reduce *reduce;            /* NULL: no other rank computes with this one */
  void *reduce_context;
  struct trm_axis *tensor_axis;       /* the ranks that divide the layers; NULL: layers are whole */
  const struct trm_param_provider *provider; /* NULL: the arrays are whole, as trm_model_bind got them */
  void (*progress)(void *context); /* called between layers: messages under way move on; NULL: there are none */
  void *progress_context;
};

struct trm_layer_ops {
  const char *name;
  const char *usage; /* "linear UNITS [bias=yes|no]": for messages and CONTRIBUTING's table */

  /* Reads the arguments into the layer. Errors name the layer and the argument. */
  int (*create)(struct trm_layer *layer, const struct trm_arguments *arguments);
  /* layer->in is set: sets out, workspace, parameters (trm_layer_add_parameter). Errors name the layer and the shapes. */
  int (*shape)(struct trm_layer *layer);
  /* y (B, out) from x (B, in). y may be x where in_place. NULL: an add, the model does it. */
  void (*forward)(struct trm_layer *layer, const struct trm_pass *pass, const float *x, float *y, float *work);
  /* dx (B, in) from dy (B, out), and the parameters' gradients (beta of the pass). dx is NULL if !needs_dx.
   * x is valid if keeps_input, y if keeps_output; otherwise NULL. dx may be dy where in_place. */
  void (*backward)(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                   const float *dy, float *dx, float *work);
  struct trm_cost (*cost)(const struct trm_layer *layer);
  /* Draws what forward computes in evaluation: the value of y (B, out) from the value x (B, in) (nn/graph.h). NULL: the
   * layer cannot be exported; of an add the model does it. */
  int (*export_graph)(const struct trm_layer *layer, struct trm_graph *graph, int x);

  bool keeps_input, keeps_output; /* what backward reads: decides what the arena must keep */
  bool in_place;                  /* forward may overwrite its input, backward its dy */
  bool is_collective;                     /* calls the pass's reduce: if it has one, passes are made even without rows */
  /* Tensor parallelism (sharding.h). wish: how it would like its input if readers would like its output as *out; NULL:
   * whole. divide: chooses and becomes one rank's part; NULL: the layer is computed whole by every rank of the axis. */
  struct trm_sharding (*preferred_sharding)(const struct trm_layer *layer, const struct trm_sharding *out);
  int (*shard)(struct trm_layer *layer, struct trm_shard_request *request);
};

/* For shape(): declares the next parameter of the layer. */
void trm_layer_add_parameter(struct trm_layer *layer, const char *name, const struct trm_shape *shape,
                             enum trm_init init, float scale);
/* The same for "weight" and, if layer->bias, "bias", by layer->rule. weight: (units, ...); each output has k inputs,
 * each input n outputs. */
void trm_layer_add_weights(struct trm_layer *layer, const struct trm_shape *weight, size_t k, size_t n);
/* "layer 3 (linear)": for messages; thread-local buffer. */
const char *trm_layer_text(const struct trm_layer *layer);

/* For shape() of layers that read floats: refuses sparse rows and tokens. */
int trm_layer_require_dense(const struct trm_layer *layer);
int trm_layer_require_values(const struct trm_layer *layer);   /* refuses tokens alone */
int trm_layer_require_sequence(const struct trm_layer *layer); /* takes sequences alone */
int trm_layer_require_image(const struct trm_layer *layer);    /* takes images (C, H, W) alone */
/* Of layers with a window over images: completes layer->window, and layer->out with the input's channels. */
int trm_layer_shape_window(struct trm_layer *layer);

/* The vectors that a layer reads: of a sequence each position's, R = B T of D values; otherwise R = B whole samples. */
size_t trm_layer_rows(const struct trm_layer *layer, const struct trm_pass *pass);
size_t trm_layer_width(const struct trm_layer *layer);

/* For create(): arguments by position or key. Missing and malformed ones are errors that quote ops->usage. A position
 * below 0 means: by key alone. Reals lie in [low, high). Sizes lie in [1, 2^31 - 1]. */
int trm_argument_size(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, size_t *value); /* leaves *value if absent and *value is not 0 */
int trm_argument_real(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, double low, double high, float *value); /* leaves *value if absent */
int trm_argument_bool(const struct trm_layer *layer, const struct trm_arguments *arguments, const char *key,
                      bool *value);
int trm_argument_pair(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, size_t min, size_t pair[2]); /* "3" or "3x5"; missing as with sizes */
int trm_argument_init_rule(struct trm_layer *layer, const struct trm_arguments *arguments); /* init=, residuals= */
int trm_argument_reject_unknown(const struct trm_layer *layer, const struct trm_arguments *arguments, int positions,
                                const char *const *keys); /* refuses what is left over; keys NULL-terminated */

/* The table of layers, ends with NULL. */
extern const struct trm_layer_ops *const trm_layer_table[];

TRM_END_DECLS
#endif
