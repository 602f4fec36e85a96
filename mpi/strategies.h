/* The table of training methods: strategy.name. */
#pragma once

#include "train/strategy.h"

extern const struct trm_strategy_ops *const trm_strategy_table[]; /* ends with NULL */
const struct trm_strategy_ops *trm_strategy_find(const char *name); /* NULL: error recorded, names the known ones */
