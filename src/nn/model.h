/* A model: layers and a loss, over one flat array of parameters and one of gradients.
 *
 * Written as text, items separated by '|':   linear 256 | relu | dropout 0.5 | linear 10
 * A layer reads the value of the one before. Three words make branches:
 *   mark NAME   names the current value           at NAME   continues from the named one
 *   add NAME    adds the named value to the current one
 * such as a residual block:                  mark in | linear 256 | relu | linear 256 | add in | relu
 * or as a preset:                            mlp 784-512-256-10 relu
 * In a configuration file also as a list of items.
 *
 * A bias before batch norm, which removes it, is omitted unless bias=yes is given.
 *
 * The flat arrays hold the parameters in the order in which the backward pass completes their gradients: the last
 * layer's first. Buckets, ZeRO shards, windows and checkpoints are intervals of them, and the complete interval grows
 * from 0 upward. Statistics (running means and variances), which are measured and not trained, are at the end. Their
 * interval of the gradient holds the moments of the batch: each pass adds its moments times its share of the batch, so
 * they are summed over passes and ranks as gradients are, and the optimizer averages them (nn/optimizer.h).
 */
#pragma once

#include "core/recordings.h"
#include "nn/partition.h"
#include "nn/layer.h"
#include "nn/loss.h"
#include "nn/optimizer.h"

TRM_BEGIN_DECLS

/* The layers that one pass computes: one of the chunks that a pipeline cuts the model into; an uncut model is one
 * chunk. Its arena keeps the activations of a micro-batch from forward to backward: there is one arena, a slot, per
 * micro-batch in flight. */
struct trm_chunk {
  int first, last;             /* layers [first, last) of the model's */
  struct trm_arena_plan *plan; /* offsets into an arena (arena_plan.h) */
  void **arena;                /* (slots) device */
};

/* A model, or the part of it that one rank has. Owned by the caller, freed by trm_model_free. */
struct trm_model {
  char *text; /* canonical: presets resolved */
  struct trm_input_spec spec;
  struct trm_layer *layer; /* (layers) */
  int layers;
  const struct trm_loss *loss;
  size_t targets;    /* of a sample: of tokens T, otherwise 1 */
  float smoothing;   /* of the targets in training (nn/loss.h); the caller sets it, 0 after create */
  float huber_delta; /* of the loss huber; the caller sets it, 1 after create */
  enum trm_value_type values; /* trm_model_set_values; float32 after create */
  bool accumulates;  /* gradients are sums over several passes; set by the caller before bind. The two contributions to
                        a tied weight are then accumulated separately, as on two ranks: the same bits */
  int recompute;     /* activation checkpointing: blocks of layers in a segment (arena_plan.h), 0:
                        none; the caller sets it before bind, 0 after create */
  bool channels_first; /* images have no other layout (channels_last.h), because a device of a rank that exchanges them
                        computes in no other; the caller sets it before bind, false after create */
  bool side_by_side; /* for trm_model_train_lanes: slots share no memory; the caller sets it before bind */
  size_t loss_chunk; /* trm_model_set_loss_chunk; 0 after create */
  size_t parameters; /* elements of each flat array (each tensor padded to 16 elements, the padding is 0) */
  size_t statistics; /* how many of them, at the end, are statistics */
  size_t frozen;     /* elements of the frozen parameters of this part, which are not in the flat arrays */
  int frozen_count;  /* of the whole model: frozen parameters, and their values without statistics */
  size_t frozen_size;
  bool *frozen_number; /* (parameters of the whole model) which are frozen, by number; NULL: none */
  double train_flop; /* of the whole model: trm_model_train_flop */
  size_t *boundary;  /* (boundaries) ascending ends of the layers' intervals: where buckets may be cut */
  int boundaries;
  struct trm_tensor *tensor; /* (tensors + statistic_tensors) trained, then statistics: ascending, for optimizers */
  int tensors, statistic_tensors;
  struct trm_device *device; /* from bind on */
  struct trm_device *frozen_device; /* of the next four; NULL: not allocated yet */
  float *frozen_host, *frozen_w;    /* (frozen) host; device: the same array where its memory is the host's */
  trm_bf16 *frozen_rounded;         /* (frozen) device: as values; NULL: values are float32 */
  float *discarded;                 /* device: the gradient of any frozen parameter */
  float *w, *g;              /* device, flat */
  trm_bf16 *rounded;         /* device, flat, without statistics: the weights as values, either of the two that follow.
                                NULL: values are float32, or a parameter provider has the weights */
  trm_bf16 *own_rounded;     /* written by passes */
  bool own_current;          /* it has the weights in use */
  const float *shared_w;     /* trm_model_share_rounded */
  trm_bf16 *shared_rounded;
  /* activations, planned for max_rows */
  size_t max_rows, arena_bytes; /* of all chunks and slots; planned, if bind has failed */
  bool training;                /* bound with gradients */
  int bound_recompute;          /* the `recompute` of the last bind */
  size_t bound_loss_chunk;      /* likewise */
  bool bound_channels_first;
  struct trm_chunk *chunk;      /* (chunks) */
  int chunks, slots;
  int current_chunk, current_slot; /* of the passes: trm_model_select */
  bool abandoned;                  /* the latest pass was ended by its slot abandons */
  void *arena;                     /* of current_chunk and current_slot */
  void *transient;                /* device: arrays of one pass only, shared by all chunks and slots */
  struct trm_arena_plan *plan;
  float *tied_gradient;          /* device: contribution of the later tied layer, if accumulates; else NULL */
  struct trm_step *sums;         /* device: of a pass without a step; the arrays of rows lie behind it */
  float *row_loss, *row_correct; /* device, (max_rows, targets) each */
  float *row_scratch;            /* device, (max_rows, targets, fields): sharded scores only (nn/loss.h) */
  const void *scores;            /* device, (B, C), of tokens (B, T, V), values, of the last forward or evaluate, rows
                                    trm_layer_output_ld of the last layer apart; train overwrites them;
                                    NULL: made in chunks (loss_chunk) */
  struct trm_recordings passes;  /* of trm_model_train */
};

/* Called in backward of passes side by side when the gradients [low, high) of pass `lane` are complete: those of the
 * next pass overwrite them. In order of `lane`, from 0. */
typedef void trm_lane_ready(void *context, int lane, size_t low, size_t high);

/* Called in backward when the gradients of the flat interval [low, high) are complete on this rank. */
typedef int trm_grad_ready(void *context, size_t low, size_t high);

/* Sums over the rows of one or more passes: samples, of tokens all their positions but those ignored. */
struct trm_loss_sums {
  double loss;    /* sum, not mean */
  double correct; /* rows with a correct prediction */
  double rows;
  double stop_requests; /* ranks that got a signal to stop */
};
enum { TRM_LOSS_SUMS = sizeof(struct trm_loss_sums) / sizeof(double) }; /* sent and summed as so many TRM_DOUBLE */

/* Reads the text, infers every shape. loss_name "auto": by the targets (nn/loss.h). Errors name the layer and both
 * shapes; after an error there is nothing to free. Takes no large memory. */
int trm_model_create(struct trm_model *model, const char *text, const char *loss_name,
                     const struct trm_input_spec *spec);
/* The same for a part of the model (partition.h). */
int trm_model_create_part(struct trm_model *model, const char *text, const char *loss_name,
                          const struct trm_input_spec *spec, const struct trm_model_part *part);
void trm_model_free(struct trm_model *model);

/* Sets the type of values (activations, their gradients, the weights that products read), before bind, or to bind
 * again. Fails if a layer does not take it. */
int trm_model_set_values(struct trm_model *model, enum trm_value_type values);

/* In training passes computes the last layer and the loss for so many rows of scores at a time, of tokens positions:
 * forward, loss, gradient of the scores, and backward, which adds to the weight's gradient, so that the scores of one
 * chunk alone are in memory. 0: all at once, as after create. Before bind, or to bind again; a model bound for
 * evaluation alone has all scores. Fails if the last layer does not compute each row by itself. */
int trm_model_set_loss_chunk(struct trm_model *model, size_t rows);

/* Sets the factors of the tensors' rates and decays by optim.groups: "PATTERN: rate=F decay=F; ...", of which a
 * parameter is in the first whose pattern matches its name. full: the whole model, whose names count. TRM_USAGE: a group
 * is malformed or has no parameter. Before trm_optimizer_create. */
int trm_model_set_groups(struct trm_model *model, const struct trm_model *full, const char *text);

/* Tokens per sample given by the text; 0: as many as the data has, or the text is wrong. */
size_t trm_model_context(const char *text);

/* Allocates the arena for batches of up to max_rows rows (training: with gradients) and sets the flat device arrays.
 * The caller owns w and g (g may be NULL when training is false; both are NULL with a parameter provider, layer.h,
 * which is then part of every pass). May be called repeatedly, with other arrays or sizes. */
int trm_model_bind(struct trm_model *model, struct trm_device *device, float *w, float *g, size_t max_rows,
                   bool training);

/* After bind, when the values of frozen parameters (trm_parameter.frozen_w) are set: makes them those of passes. */
int trm_model_load_frozen(struct trm_model *model);

/* The same for `slots` micro-batches in flight. Selects chunk 0, slot 0. */
int trm_model_bind_slots(struct trm_model *model, struct trm_device *device, float *w, float *g, size_t max_rows,
                         bool training, int slots);

/* Before bind: these weights (flat, like w of bind) have a rounded copy, which their owner keeps current. Passes over
 * others make their own. */
void trm_model_share_rounded(struct trm_model *model, const float *w, trm_bf16 *rounded);

/* Lets the passes read other weights: a flat array like w of bind. */
void trm_model_use_weights(struct trm_model *model, float *w);

/* Returns true if the slice is not the whole tensor. */
bool trm_slice_is_shard(const struct trm_slice *slice);

/* parallel.recompute as `recompute` of a model: "none" 0, "block" 1, or the number. TRM_USAGE: it is none of these. */
int trm_model_parse_recompute(const char *text, int *blocks);

/* The index in the whole tensor of an element of the slice. */
size_t trm_slice_full_index(const struct trm_slice *slice, size_t element);

/* Initial values of one parameter, or of the slice of it, (count). */
void trm_parameter_init(const struct trm_parameter *parameter, uint64_t seed, float *host);
/* Initial weights into a host array of `parameters` floats, keyed by (seed, number of the parameter and of the element
 * in the whole model); padding 0. */
void trm_model_init(const struct trm_model *model, uint64_t seed, float *host_w);

/* SHA-256 of the parameters in order of name (strcmp) as little-endian floats: independent of the flat order and its
 * padding. */
void trm_model_hash(const struct trm_model *model, const float *host_w, char hex[65]);
/* The same, tensor by tensor: read_tensor returns the values of parameter `number` of state 0, valid until its next
 * call. Returns its failure. */
int trm_model_hash_tensors(const struct trm_model *model,
                           int (*read_tensor)(void *context, int state, int number, const float **values),
                           void *context, char hex[65]);

/* -- passes over the selected chunk and slot */

void trm_model_select(struct trm_model *model, int chunk, int slot);

/* The arrays at the ends of a chunk, for messages between pipeline stages: device, (B, shape), values. input: written
 * before forward; its gradient is valid after backward. output: valid after forward; its gradient is written before
 * backward. NULL: the chunk begins with the batch, ends with the scores. */
void *trm_model_chunk_input(const struct trm_model *model, bool gradient, const struct trm_shape **shape);
void *trm_model_chunk_output(const struct trm_model *model, bool gradient, const struct trm_shape **shape);

/* Forward alone: scores (B, C) are left in model->scores. */
void trm_model_forward(struct trm_model *model, const struct trm_pass *pass);

/* Waits until the device has made the calls of the pass. */
int trm_pass_wait(const struct trm_pass *pass);

/* Copies the scores of `rows` vectors, of tokens each position's, from vector `first` on to the host: (rows, C). */
void trm_model_read_scores(const struct trm_model *model, size_t first, size_t rows, float *host);

/* Forward and loss; adds to the loss sums: to *sums, or, in the passes of a step (trm_pass.step), to the step's in
 * device memory. */
int trm_model_evaluate(struct trm_model *model, const struct trm_pass *pass, struct trm_loss_sums *sums);

/* Forward, loss, backward. The loss of each sample (of tokens: the sum over its T positions by T) is weighted with
 * `scale` (1 / samples of the global batch). Adds to the loss sums, then calls ready, if not NULL, as gradients
 * complete.
 * pass->input->rows may be 0: gradients are then zeroed (beta = 0) or left (beta = 1), and ready is called all the
 * same. A pass of a step that needs no other rank and no copies is recorded where device->graphs (core/recordings.h);
 * ready is then called at its end, for all gradients. */
int trm_model_train(struct trm_model *model, const struct trm_pass *pass, float scale, struct trm_loss_sums *sums,
                    trm_grad_ready *ready, void *context);

/* The same for `lanes` passes over parts of a batch, pass (lanes), in slots 0, 1, ...: side by side, each layer in all
 * passes before the next layer, so that a layer may sum over the batch (layer.h: batch_sums). lane_ready adds up the
 * gradients of the passes, each of which overwrites them; ready is called when its calls are over for an interval.
 * For a whole model without tied weights, loss_chunk and parameter provider. */
int trm_model_train_lanes(struct trm_model *model, struct trm_pass *pass, int lanes, float scale,
                          struct trm_loss_sums *sums, trm_lane_ready *lane_ready, trm_grad_ready *ready,
                          void *context);

/* The parts of trm_model_train after forward. trm_model_loss, for the last chunk only: adds to the sums and, if
 * pass->training, computes the gradient of the scores, weighted by pass->scale; trm_model_backward follows before any
 * other pass. trm_model_backward: from the gradient of the chunk's output; calls ready for this chunk's intervals. */
int trm_model_loss(struct trm_model *model, const struct trm_pass *pass, struct trm_loss_sums *sums);
int trm_model_backward(struct trm_model *model, const struct trm_pass *pass, trm_grad_ready *ready, void *context);

/* Number of trained values: without the padding of the flat arrays, without statistics. */
size_t trm_model_size(const struct trm_model *model);

/* Parameters of this rank, numbered from the first layer up; NULL beyond the last. */
int trm_model_parameter_count(const struct trm_model *model);
struct trm_parameter *trm_model_parameter(const struct trm_model *model, int number);

/* Logs omitted parts of the text: one line per bias before a batch norm. */
void trm_model_log(const struct trm_model *model);

/* For an error about a bias that a file has and the model does not: if the bias was omitted from the layer with this
 * parameter, returns what to write to keep it, with "; " in front; otherwise "". */
const char *trm_model_bias_hint(const struct trm_model *model, const char *parameter);

/* Returns a line per layer: name, shapes, parameters. Caller frees. */
char *trm_model_describe(const struct trm_model *model);

struct trm_cost trm_model_cost(const struct trm_model *model); /* forward, per sample */
/* Operations of training, per sample: backward takes as many as forward for the gradient of a layer's input, and as
 * many for those of its parameters, unless they are frozen. */
double trm_model_train_flop(const struct trm_model *model);
/* Returns true if backward recomputes this layer. The model is bound. */
bool trm_model_recomputes(const struct trm_model *model, int layer);
/* The cost of recomputation in backward, per sample, for a model to be bound with so many slots. */
struct trm_cost trm_model_recompute_cost(const struct trm_model *model, int slots);

TRM_END_DECLS
