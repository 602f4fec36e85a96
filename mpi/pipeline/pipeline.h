/* Pipelines whose stages send one another messages. */
#pragma once

#include "train/pipeline.h"

extern const struct trm_pipeline_ops trm_pipeline_messages;
