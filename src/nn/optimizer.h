/* Optimizers: rules on intervals of the flat arrays. Rate and schedule are functions of the step alone.
 *
 *   sgd       w -= rate * g
 *   momentum  m = momentum * m + g;               w -= rate * m                  (Polyak 1964, PyTorch's form)
 *   nesterov  m = momentum * m + g;               w -= rate * (g + momentum * m) (Sutskever et al. 2013, likewise)
 *   adagrad   s += g^2;  w -= rate * g / (sqrt(s) + epsilon)                     (Duchi, Hazan & Singer 2011)
 *   adam      Kingma & Ba 2015, with bias correction
 *   adamw     Loshchilov & Hutter 2019: decay decoupled from the gradient
 *   nadamw    adamw with Nesterov's step, in place of m / (1 - beta1^t): (Dozat 2016; PyTorch's NAdam)
 *             mu(t+1) m / (1 - product(t+1)) + (1 - mu(t)) g / (1 - product(t)),  product(t) = mu(1) ... mu(t),
 *             mu(t) = beta1 (1 - 0.96^(0.004 t) / 2)
 *   lars      m = momentum * m + rate * ratio * g; w -= m;  ratio = trust * |w| / (|clip scale * gradient| + l2 * |w|)
 *             (You, Gitman & Ginsburg 2017, algorithm 1)
 *   lamb      u = m^ / (sqrt(v^) + epsilon) + decay * w with adam's corrected moments;
 *             w -= rate * ratio * u;                        ratio = |w| / |u|      (You et al. 2020, algorithm 2)
 *   muon      hidden matrices: m = momentum * m + g;  x = (g + momentum * m) / (|g + momentum * m| + 1e-7), Frobenius;
 *             five times x = a x + b x x' x + c (x x')^2 x with (a, b, c) = (3.4445, -4.7750, 2.0315);
 *             w -= rate * (sqrt(max(1, rows / columns)) * x + decay * w)      (Jordan et al. 2024, PyTorch's Muon)
 *             all others: adamw with the rate optim.adamw_lr
 * A hidden matrix is a weight that products read, of a layer between the first and the last with one, and not tied. As
 * a matrix it has a row an output: of a convolution (output channels, input channels * kernel).
 * Before the rule: g = clip scale * gradient + l2 * w. Decoupled decay (optim.decay) is for adamw, nadamw,
 * lamb and muon, which has no l2.
 *
 * A tensor may have factors of rate and decay (optim.groups): its rule is that of a parameter group in PyTorch.
 *
 * Tensors of one dimension, which are biases and the gains of normalization, are left out of decoupled decay and of
 * lars' l2, unless optim.decay_all asks for them; lars and lamb give them the ratio 1. The l2 of the other rules is for
 * all, as PyTorch's weight_decay is.
 *
 * lars and lamb need norms of whole tensors, of which a rank may own a slice. So an update has three parts:
 *   trm_optimizer_prepare   lamb: the gradient becomes u                         element by element
 *   trm_optimizer_partial_norms     squared norms of w and g, piece by piece; the pieces of all ranks together make
 *   trm_optimizer_trust_ratios    a ratio for each tensor                              the same bits on every rank
 *   trm_optimizer_apply     the rule                                             element by element
 * muon needs whole hidden matrices: trm_muon_direction comes before apply, and puts x, scaled, in place of g.
 * All other rules are applied at once.
 *
 * Update error feedback (parallel.error_feedback; Zmushko et al. 2026) is for gradients that are a step late. With u
 * the whole step of the rule, decay included, and u' that of the update before, which is one more state:
 *
 *   w -= u + (u - u');  u' = u;                              update 1: w -= u
 *
 * The average (optim.ema) is one more state, the last: after each update average += (1 - d) (w - average), and it
 * begins as the initial weights. d = min(ema, (1 + t) / (10 + t)) after update t: at first the latest tenth of the run
 * counts, as in TensorFlow's ExponentialMovingAverage. It covers the statistics, too. Evaluations use it in place of the
 * weights.
 *
 * Statistics, the running moments of normalization, follow no rule. The gradient of one is the moment of the batch, and
 *
 *   r += momentum * (moment - r)                             momentum: of the layer, as in torch.nn.BatchNorm2d
 *
 * so the change depends on the value that r has at the update, not at the pass, and overlapping updates do not add up
 * to more than one. Neither clipping nor the rate applies. A gradient that is of k batches (trm_update.batches) carries
 * the moment of trm_optimizer_add_moments; then r moves as by k updates in succession, by 1 - (1 - momentum)^k of the
 * way.
 */
#pragma once

#include "core/device.h"
#include "core/options.h"

TRM_BEGIN_DECLS

/* Flat arrays of a run: the weights and the optimizer's states. */
#define TRM_MAX_STATES 5

/* A tensor in the flat arrays, its padding included. It begins where the one before ends, the first at 0. Statistics
 * come after all trained tensors. */
struct trm_tensor {
  size_t end;         /* elements */
  size_t columns;     /* as a matrix, its first dimension by the others: elements of a row */
  size_t padding;     /* elements at its end whose weights and gradients stay 0 */
  float momentum;     /* of a statistic: the weight of a batch's moment */
  bool grouped;       /* in a group of optim.groups: */
  float rate, decay;  /* its factors of the learning rate, and of l2 and decay */
  bool vector;        /* one dimension at most */
  bool hidden;        /* a hidden matrix, see muon */
  bool replica;       /* counted in norms by another rank with the same elements */
  bool sharded;       /* other ranks of the tensor axis have other elements of it */
  bool shared;        /* a tied weight, used at both ends of the chain */
  bool last_of_chunk; /* the last of a chunk: later gradients become complete at another time */
};

struct trm_model;
/* An optimizer: rule, constants and states. Set by trm_optimizer_create. */
struct trm_optimizer {
  struct trm_update update; /* rule and constants; rate, scale and step are set per step */
  int states;               /* arrays of state: 0 to 4 */
  double clip;              /* largest global norm of the gradient, 0: none */
  double trust;             /* lars */
  double adamw;             /* muon: rate of adamw over that of muon */
  double ema;               /* decay of the average, the last of the states; 0: none */
  bool error_feedback;      /* of updates: the state last_step, before the average */
  bool decay_all;
  const struct trm_tensor *tensor; /* (tensors + statistics), the trained ones first */
  int tensors, statistics;
};

/* Reads and checks the options of section optim, schedule included. sgd with a momentum is momentum;
 * momentum, nesterov and lars without one take 0.9. With strategy.compress=dgc, which has the momentum and clips
 * itself, sgd stays sgd, and nothing is clipped. The tensors are the model's (NULL: none). TRM_USAGE names the option
 * and why. Nothing to free. */
int trm_optimizer_create(struct trm_optimizer *optimizer, const struct trm_options *options,
                         const struct trm_model *model);
/* "momentum"; "squares"; "first", "second"; "last_step"; "ema"; NULL beyond the last */
const char *trm_optimizer_state_name(const struct trm_optimizer *optimizer, int state);
/* Elements of the flat arrays that are trained, from 0 on. */
size_t trm_optimizer_trained(const struct trm_optimizer *optimizer);

/* Returns the factor that clips a gradient of this squared global norm (1 if it is below, or without clipping). */
float trm_clip_scale(const struct trm_optimizer *optimizer, double norm_squared);

/* Returns the squared norm of the elements of [low, low + n) of the gradient that are trained and not counted by
 * another rank. g: device, element `low`. Sums over ranks are the argument of trm_clip_scale. */
double trm_optimizer_norm_squared(const struct trm_optimizer *optimizer, struct trm_device *device, size_t low,
                                  size_t n, const float *g);

/* Adds the same to *sum, in device memory. */
void trm_optimizer_add_norm(const struct trm_optimizer *optimizer, struct trm_device *device, size_t low, size_t n,
                            const float *g, double *sum);

/* The numbers of update `number`, 1-based: for the step in device memory, before its passes. */
struct trm_step trm_optimizer_step(const struct trm_optimizer *optimizer, uint64_t number, double rate);
/* The update that takes its rate, scale and number from a step in device memory. */
struct trm_update trm_optimizer_update_now(const struct trm_optimizer *optimizer, const struct trm_step *now);

/* -- one update. g: the interval's gradient, device. hyper: optimizer->update with this step's rate, scale and step, or
 * trm_optimizer_update_now. */

/* Elements [low, low + n) of the flat arrays: device pointers to element `low`. */
struct trm_update_interval {
  size_t low, n;
  float *w;
  float *const *state; /* (optimizer->states) */
  trm_bf16 *rounded;   /* the new trained weights in bfloat16; NULL: not written */
};

/* Applies the rule, updates statistics, and then the average. ratio: (tensors), of trm_optimizer_trust_ratios, or, if
 * hyper is of a step in device memory, of kernel trust_ratios and there, too; unused by rules without. */
void trm_optimizer_apply(const struct trm_optimizer *optimizer, struct trm_device *device,
                         const struct trm_update *hyper, const float *ratio, const struct trm_update_interval *to,
                         const float *g);

/* Adds the moments of batch number `batch`, 1-based, to those of the batches before: to += weight (g - to), so that
 * the result has the weights of successive updates. Elements [low, low + n): to, g (n); trained ones are left out. */
void trm_optimizer_add_moments(const struct trm_optimizer *optimizer, struct trm_device *device, int batch, size_t low,
                               size_t n, float *to, const float *g);

/* -- muon */

/* Floats of device memory that directions need. 0: the rule is not muon, or no tensor is a hidden matrix. */
size_t trm_muon_scratch(const struct trm_optimizer *optimizer);
/* Returns which of `ranks` that share the work in turn has hidden matrix t; -1: tensor t is none. */
int trm_muon_owner(const struct trm_optimizer *optimizer, int t, int ranks);
/* Puts the direction of hidden matrix t in the gradient's place, and moves its momentum. m, g: device, flat arrays from
 * element 0 on; scratch: device, (trm_muon_scratch). */
void trm_muon_direction(const struct trm_optimizer *optimizer, struct trm_device *device,
                        const struct trm_update *hyper, int t, float *m, float *g, float *scratch);

/* Returns true if the rule has trust ratios. Then the following come before apply, in this order. */
bool trm_optimizer_has_trust_ratios(const struct trm_optimizer *optimizer);
void trm_optimizer_prepare(const struct trm_optimizer *optimizer, struct trm_device *device,
                           const struct trm_update *hyper, const struct trm_update_interval *to, float *g);
/* A piece is the part of a tensor in one unit of `unit` elements: the piece of unit u and tensor t has number u + t,
 * which is ascending and unique. Writes the squared norms of w and g of each piece in the interval to norm[number]; low
 * and low + n are multiples of the unit, or the end of the arrays. */
size_t trm_optimizer_norm_count(const struct trm_optimizer *optimizer, size_t unit);
void trm_optimizer_partial_norms(const struct trm_optimizer *optimizer, struct trm_device *device, size_t unit,
                                 const struct trm_update_interval *of, const float *g, double (*norm)[2]);
/* Writes the squared norms of w and g of each whole tensor to norm (tensors), in device memory; not those whose ratio
 * is 1. of: all elements. */
void trm_optimizer_tensor_norms(const struct trm_optimizer *optimizer, struct trm_device *device,
                                const struct trm_update_interval *of, const float *g, double (*norm)[2]);
/* sum (tensors): the norms of the pieces, added in ascending order; afterwards a tensor counts as one piece, with a
 * unit of SIZE_MAX. */
void trm_optimizer_sum_norms(const struct trm_optimizer *optimizer, size_t unit, double (*norm)[2], double (*sum)[2]);
/* Computes the ratios from the norms of all pieces, added in ascending order. ratio (tensors) */
void trm_optimizer_trust_ratios(const struct trm_optimizer *optimizer, const struct trm_update *hyper, size_t unit,
                                double (*norm)[2], float *ratio);

/* Learning rate of 0-based step of `steps` in all. With p = step / steps:
 *   constant  rate
 *   step      rate * gamma^(milestones reached); optim.milestones is a list such as "0.5,0.75" or "30,60": a number
 *             below 1 or with a point is a fraction of the run, a whole number an epoch
 *   cosine    rate * (final + (1 - final) (1 + cos(pi p)) / 2)                   (Loshchilov & Hutter 2017)
 *   linear    rate * (1 - (1 - final) p)
 *   onecycle  from rate / 25 to rate in W steps and on to rate * final, both along half a cosine; without warm-up in
 *             0.3 of the steps          (Smith & Topin 2019; PyTorch's OneCycleLR, whose momentum does not change here)
 *   plateau   rate here; the caller multiplies it by the factor of trm_plateau_add
 * Warm-up multiplies the others by (step + 1) / W over the first W steps: W = optim.warmup, or, below 1, that fraction
 * of the run. */
double trm_schedule_rate(const struct trm_options *options, uint64_t step, uint64_t steps, uint64_t steps_per_epoch);

/* Returns W. */
uint64_t trm_schedule_warmup(const struct trm_options *options, uint64_t steps);

/* State of schedule plateau: PyTorch's ReduceLROnPlateau for losses, with relative threshold. */
struct trm_plateau {
  double factor;   /* on the rate; 1 at the beginning */
  double best;     /* loss; INFINITY at the beginning */
  uint64_t waited; /* evaluations since the best one or the latest change of the factor */
};
/* Adds the loss of an evaluation. A loss below best (1 - optim.threshold) is the new best one; after more than
 * optim.patience others in a row the factor becomes factor * optim.gamma, optim.final at least. Returns true if the
 * factor has changed. */
bool trm_plateau_add(struct trm_plateau *plateau, const struct trm_options *options, double loss);

/* Checks the schedule's options; part of trm_optimizer_create. */
int trm_schedule_check(const struct trm_options *options);

TRM_END_DECLS
