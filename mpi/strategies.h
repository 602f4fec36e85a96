/* The table of training methods: strategy.name. */
#pragma once

#include "train/strategy.h"

/* The training methods, a row each. To add one: its file in sync/ or async/, which defines trm_strategy_NAME, and NAME
 * here (docs/new-method.md). */
#define TRM_METHODS(ROW) \
  ROW(sync)        \
  ROW(local)       \
  ROW(postlocal)   \
  ROW(slowmo)      \
  ROW(bmuf)        \
  ROW(diloco)      \
  ROW(adasum)      \
  ROW(asgd)        \
  ROW(hogwild)     \
  ROW(groups)      \
  ROW(softsync)    \
  ROW(dcasgd)      \
  ROW(dana)        \
  ROW(ormo)        \
  ROW(ringmaster)  \
  ROW(rennala)     \
  ROW(backup)      \
  ROW(malenia)     \
  ROW(mindflayer)  \
  ROW(ringleader)  \
  ROW(iaasgd)      \
  ROW(ssp)         \
  ROW(essp)        \
  ROW(easgd)       \
  ROW(eamsgd)      \
  ROW(fedasync)    \
  ROW(fedbuff)     \
  ROW(asyncdiloco) \
  ROW(halos)       \
  ROW(adpsgd)      \
  ROW(a2cid2)      \
  ROW(sgp)         \
  ROW(keuper)

#define TRM_DECLARE_METHOD(name) extern const struct trm_strategy_ops trm_strategy_##name;
TRM_METHODS(TRM_DECLARE_METHOD)

extern const struct trm_strategy_ops *const trm_strategy_table[]; /* TRM_METHODS, then NULL */
const struct trm_strategy_ops *trm_strategy_find(const char *name); /* NULL: error recorded, names the known ones */
