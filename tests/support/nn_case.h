/* A model on a device with its arrays and one batch: what the tests of src/nn set up again and again. */
#pragma once

#include "nn/model.h"
#include "support/on_devices.h"

enum { NN_ROWS = 16 };

/* Kinds of samples for the models. */
extern const struct trm_input_spec nn_ten_classes, nn_nine_classes, nn_image_classes, nn_images, nn_sparse_two,
  nn_three_values, nn_one_value, nn_tokens;

/* Models that hold every layer and loss in many combinations. */
struct nn_example {
  const char *text, *loss;
  const struct trm_input_spec *spec;
  bool kinks; /* relu, hinge: the steps of finite differences must be short enough for none to lie within */
};
extern const struct nn_example nn_examples[]; /* ends with a text that is NULL */

struct nn_case {
  struct trm_device *device;
  struct trm_model model;
  float *w, *g;        /* device, (model.parameters) */
  struct trm_input input;
  void *batch[6];      /* device memory of the batch */
  int arrays;
};

/* Creates and binds the model, with the initial weights of `seed`, none of them so small that differences of losses
 * drown. The case is then ready for nn_case_batch. */
int nn_case_open(struct nn_case *c, struct trm_device *device, const char *text, const char *loss,
                 const struct trm_input_spec *spec, size_t max_rows, uint64_t seed);
void nn_case_close(struct nn_case *c);

/* Puts a batch on the device. x (rows, F) dense: the case's spec says if it travels as CSR (zeros are then left out) or
 * as tokens, x (rows, T) then holding their numbers and target_class (rows, T).
 * Exactly one kind of target may be given; of classes {0, 1} the signed values are made where the loss wants them. */
void nn_case_batch(struct nn_case *c, size_t rows, const float *x, const int32_t *target_class,
                   const float *target_value);
/* A batch of up to NN_ROWS rows drawn by number; half of sparse samples' values are 0. */
void nn_case_draw(struct nn_case *c, size_t rows, uint32_t stream);
/* Its rows [low, high) as a batch of their own. */
struct trm_input nn_case_part(const struct nn_case *c, size_t low, size_t high);

/* Flat, (parameters). What is read is read with read_floats: it lives until the run on this device ends, and must be
 * the same on all devices. */
void nn_case_upload(struct nn_case *c, const float *host_w);
float *nn_case_weights(struct nn_case *c);
float *nn_case_gradient(struct nn_case *c);
/* One training pass; its gradient. */
float *nn_case_train(struct nn_case *c, const struct trm_pass *pass, float scale);

double norm_of(const float *x, size_t n);
double distance_of(const float *a, const float *b, size_t n); /* |a - b| / |b| */

/* A pass over the case's batch: training, seed 7, first row 0, beta 0. */
struct trm_pass nn_case_pass(const struct nn_case *c);
