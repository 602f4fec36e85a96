/* Pipelines whose stages send one another messages. */
#ifndef TRM_MPI_PIPELINE_PIPELINE_H
#define TRM_MPI_PIPELINE_PIPELINE_H

#include "train/pipeline.h"

extern const struct trm_pipeline_ops trm_pipeline_messages;

#endif
