/* Everything a program that uses the library includes: the core, learning, and training. */
#ifndef TRIREME_H
#define TRIREME_H

#include "core/axis.h"
#include "core/comm.h"
#include "core/device.h"
#include "core/document.h"
#include "core/log.h"
#include "core/mapped.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"
#include "nn/balance.h"
#include "nn/cut.h"
#include "nn/graph.h"
#include "nn/input.h"
#include "nn/layer.h"
#include "nn/loss.h"
#include "nn/model.h"
#include "nn/names.h"
#include "nn/optimizer.h"
#include "train/actions.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/grid.h"
#include "train/pipeline.h"
#include "train/staleness.h"
#include "train/strategy.h"
#include "train/train.h"

#endif
