/* Fixture for the tests of src/nn: a model on a device with its arrays and one batch. */
#pragma once

#include "nn/model.h"
#include "support/on_devices.h"

enum { NN_ROWS = 16 };

/* Input specifications of the models. */
extern const struct trm_input_spec nn_ten_classes, nn_nine_classes, nn_image_classes, nn_images, nn_sparse_two,
  nn_three_values, nn_one_value, nn_tokens;

/* What finite differences of the loss must take care of: kinks (relu, hinge), which a short step does not cross; strong
 * curvature (a norm of small values), where they are of fourth order. */
enum nn_loss_form { NN_SMOOTH, NN_KINKS, NN_CURVED };

/* Models that cover every layer and loss in many combinations. */
struct nn_example {
  const char *text, *loss;
  const struct trm_input_spec *spec;
  enum nn_loss_form form;
};
extern const struct nn_example nn_examples[]; /* ends with text NULL */

struct nn_case {
  struct trm_device *device;
  struct trm_model model;
  float *w, *g;        /* device, (model.parameters) */
  struct trm_input input;
  void *batch[6];      /* device memory of the batch */
  int arrays;
};

/* Creates and binds the model. Initial weights are those of `seed`, kept away from 0 so that finite differences exceed
 * rounding. nn_case_batch comes next. */
int nn_case_open(struct nn_case *c, struct trm_device *device, const char *text, const char *loss,
                 const struct trm_input_spec *spec, size_t max_rows, uint64_t seed);
void nn_case_close(struct nn_case *c);

/* Puts a batch on the device. x (rows, F), dense; converted to CSR without zeros, or to tokens, if the spec asks for
 * it; for tokens x (rows, T) holds their numbers and target_class is (rows, T). At most one kind of target is given;
 * signed targets are made of classes {0, 1} if the loss needs them. */
void nn_case_batch(struct nn_case *c, size_t rows, const float *x, const int32_t *target_class,
                   const float *target_value);
/* Makes a pseudo-random batch of up to NN_ROWS rows; half of the values of sparse samples are 0. */
void nn_case_draw(struct nn_case *c, size_t rows, uint32_t stream);
/* Returns rows [low, high) of the batch. */
struct trm_input nn_case_part(const struct nn_case *c, size_t low, size_t high);

/* Flat arrays, (parameters). Results come from read_floats: valid until the run on this device ends, and compared
 * between devices. */
void nn_case_upload(struct nn_case *c, const float *host_w);
float *nn_case_weights(struct nn_case *c);
float *nn_case_gradient(struct nn_case *c);
/* Runs one training pass and returns its gradient. */
float *nn_case_train(struct nn_case *c, const struct trm_pass *pass, float scale);

double norm_of(const float *x, size_t n);
double distance_of(const float *a, const float *b, size_t n); /* |a - b| / |b| */

/* Returns a training pass over the case's batch: seed 7, first row 0, beta 0. */
struct trm_pass nn_case_pass(const struct nn_case *c);
