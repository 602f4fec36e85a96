/* The asynchronous methods, for the table of strategies (mpi/strategies.c). */
#pragma once

#include "train/strategy.h"

extern const struct trm_strategy_ops trm_strategy_asgd, trm_strategy_groups, trm_strategy_softsync,
  trm_strategy_dcasgd, trm_strategy_ssp, trm_strategy_essp, trm_strategy_easgd, trm_strategy_eamsgd,
  trm_strategy_adpsgd, trm_strategy_sgp, trm_strategy_keuper, trm_strategy_hogwild;
