/* The values of options of kind `choice`, each enum in the order of its words in the table (options_table.c). */
#pragma once

enum trm_loss_kind {
  TRM_LOSS_AUTO, /* by the kind of target */
  TRM_LOSS_SOFTMAX_CROSS_ENTROPY,
  TRM_LOSS_MEAN_SQUARED_ERROR,
  TRM_LOSS_LOGISTIC,
  TRM_LOSS_HINGE,
  TRM_LOSS_HUBER,
  TRM_LOSS_BINARY_CROSS_ENTROPY,
};

/* optim.name; the rules are in nn/optimizer.h */
enum trm_update_rule {
  TRM_UPDATE_SGD,
  TRM_UPDATE_MOMENTUM,
  TRM_UPDATE_NESTEROV,
  TRM_UPDATE_ADAGRAD,
  TRM_UPDATE_ADAM,
  TRM_UPDATE_ADAMW,
  TRM_UPDATE_NADAMW,
  TRM_UPDATE_LARS,
  TRM_UPDATE_LAMB, /* not for the device's slot `update`: lamb_direction, then sgd */
  TRM_UPDATE_MUON, /* likewise: orthogonalized (nn/muon.c), then sgd; adamw */
  TRM_UPDATE_RULES /* how many there are */
};

enum trm_lr_schedule { TRM_LR_CONSTANT, TRM_LR_STEP, TRM_LR_COSINE, TRM_LR_LINEAR, TRM_LR_ONECYCLE, TRM_LR_PLATEAU };

enum trm_layout_mode { TRM_LAYOUT_GIVEN, TRM_LAYOUT_AUTO };
enum trm_schedule_name { TRM_GPIPE, TRM_1F1B, TRM_INTERLEAVED, TRM_PIPEDREAM, TRM_2BW };
enum trm_progress { TRM_PROGRESS_THREAD, TRM_PROGRESS_CALLS };
enum trm_share { TRM_SHARE_NODE, TRM_SHARE_NUMA, TRM_SHARE_NONE, TRM_SHARE_PROCESS /* no choice of an option */ };
enum trm_shard { TRM_SHARD_ALL, TRM_SHARD_NODE };

enum trm_assignment { TRM_ASSIGN_DYNAMIC, TRM_ASSIGN_STATIC };
enum trm_batch_meaning { TRM_BATCH_UPDATE, TRM_BATCH_WORKER, TRM_BATCH_GLOBAL };
enum trm_stale_rate {
  TRM_STALE_RATE_CONSTANT,
  TRM_STALE_RATE_DIVIDED,
  TRM_STALE_RATE_DELAY,
  TRM_STALE_RATE_POLYNOMIAL,
  TRM_STALE_RATE_HINGE,
};
enum trm_peer_graph { TRM_GRAPH_COMPLETE, TRM_GRAPH_RING, TRM_GRAPH_TORUS, TRM_GRAPH_EXPONENTIAL };
enum trm_stragglers { TRM_STRAGGLERS_WAIT, TRM_STRAGGLERS_DROP };
enum trm_aggregate { TRM_AGGREGATE_NONE, TRM_AGGREGATE_NODE };
enum trm_replica { TRM_REPLICA_NODE, TRM_REPLICA_RANK };
enum trm_conflicts { TRM_CONFLICTS_ADD, TRM_CONFLICTS_OVERWRITE }; /* of pending updates */
enum trm_compress {
  TRM_COMPRESS_NONE,
  TRM_COMPRESS_BF16,
  TRM_COMPRESS_FP16,
  TRM_COMPRESS_TOPK,
  TRM_COMPRESS_DGC,
  TRM_COMPRESS_SIGN,
  TRM_COMPRESS_QSGD,
  TRM_COMPRESS_POWERSGD,
};
enum trm_compress_bits { TRM_COMPRESS_2_BITS, TRM_COMPRESS_4_BITS, TRM_COMPRESS_8_BITS }; /* 2 << value */
enum trm_compensation { TRM_COMPENSATION_CONSTANT, TRM_COMPENSATION_ADAPTIVE };

enum trm_background_saves { TRM_BACKGROUND_AUTO, TRM_BACKGROUND_YES, TRM_BACKGROUND_NO };
enum trm_trace_mode { TRM_TRACE_NONE, TRM_TRACE_STEPS, TRM_TRACE_REGIONS };

enum trm_matmul { TRM_MATMUL_F32, TRM_MATMUL_BF16, TRM_MATMUL_TF32 };
enum trm_value_type { TRM_VALUES_F32, TRM_VALUES_BF16 }; /* train.activations */
enum trm_compute { TRM_COMPUTE_REAL, TRM_COMPUTE_SLEEP };
