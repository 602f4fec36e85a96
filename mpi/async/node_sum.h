/* strategy.aggregate=node: the workers of a node send their gradients through the node's memory, in one message at a
 * time. A worker adds its gradient to the node's sum. If no message of the node is under way, it sends the sum and
 * publishes the weights that come back; otherwise it goes on with the weights published last, and its gradient leaves
 * with the next message. So the traffic between nodes does not grow with the workers of a node. There are two sums: one
 * is sent while the other one grows. A sum has at most one gradient of each worker: before it adds a second one, a
 * worker waits for the answer to the message under way. Without this limit a slow message would be followed by a sum of
 * any number of gradients at the same weights, a step of any length. */
#pragma once

#include "mpi/async/gradient_sum.h"

struct node_sum_state;

struct node_sum {
  struct trm_comm *node;         /* not owned */
  struct trm_shared shared;
  struct node_sum_state *state;  /* in shared memory; NULL: not created */
  float *sum[2], *weights;       /* in shared memory, (elements): the sums; the weights published last */
  int64_t read;                  /* publications when this worker last took weights */
  int64_t added;                 /* number of the sum that has this worker's last gradient; -1: none */
};

/* Collective over the worker's node. */
int node_sum_create(struct trm_strategy *strategy, struct node_sum *sum);
void node_sum_free(struct node_sum *sum);
/* Sums are empty, and weights of before are not taken any more. Collective over the node. */
void node_sum_clear(struct trm_strategy *strategy, struct node_sum *sum);
/* The worker has taken its weights from the server. */
void node_sum_pulled(struct node_sum *sum);
/* Adds the worker's gradient g, with this rate and scale of clipping; w becomes newer weights, if there are any. May
 * wait for another worker's message. */
void node_sum_step(struct trm_strategy *strategy, struct node_sum *sum, double rate, double scale);
/* Sends what nobody sends. After the last worker's call everything has been sent. */
void node_sum_drain(struct trm_strategy *strategy, struct node_sum *sum);
