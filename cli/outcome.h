/* The outcome of a run: divergence, from its summary.json. */
#pragma once

#include <stdbool.h>

#include "core/document.h"

/* A run has diverged if its training loss, the mean of the last epoch, is more than twice the loss of its first batch
 * (one that learns nothing stays near it), or if it failed because a loss was not finite, or its test loss is not.
 * summary: NULL: none. first_loss: NAN: not known, or not computed. */
bool outcome_is_diverged(const struct trm_node *summary, double first_loss);
