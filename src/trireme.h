/* The library: a program includes this header alone (or those of it that it needs), in C or C++.
 * job/job.h is where a program begins; train/strategy.h and nn/layer.h are the contracts of a training method and of a
 * layer of its own. Names begin with trm_ or TRM_. TRM_VERSION: core/api.h. */
#ifndef TRIREME_H
#define TRIREME_H

#include "core/api.h"
#include "core/axis.h"
#include "core/choices.h"
#include "core/comm.h"
#include "core/device.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/random.h"
#include "core/status.h"
#include "job/job.h"
#include "nn/graph.h"
#include "nn/input.h"
#include "nn/layer.h"
#include "nn/loss.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "nn/partition.h"
#include "nn/sharding.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/grid.h"
#include "train/row_trainer.h"
#include "train/staleness.h"
#include "train/strategy.h"
#include "train/train.h"

#endif
