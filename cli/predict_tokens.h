/* Predictions of a model of tokens. */
#pragma once

#include "cli/loaded.h"

/* Writes a line, a JSON object, for each sequence of the data set: index, tokens (those with a target), loss (their
 * mean), perplexity, and the likeliest token after the last position: next_token, next_probability and, with a
 * vocabulary, next_text. Replaces the file atomically. */
int predict_tokens_write(struct loaded *loaded, struct trm_job *job, const char *path);
