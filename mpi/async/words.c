#include "mpi/async/words.h"

#include <stdatomic.h>

#include "core/status.h"

/* Each on a cache line of its own: they are written by many. */
#define STRIDE 8

int words_create(struct words *words, struct trm_comm *comm, struct trm_comm *node, int home, size_t count)
{
  *words = (struct words){.node = node, .home = home};
  const size_t room = count * STRIDE;
  if (node->size < comm->size) {
    void *own;
    return comm->ops->window_create(comm, comm->rank == home ? room : 0, TRM_INT64, "counters", &words->window, &own);
  }
  const int status = node->ops->share(node, node->rank == 0 ? room * sizeof(int64_t) : 0, "counters", &words->shared);
  if (status == TRM_OK)
    words->word = words->shared.base[0];
  return status;
}

void words_free(struct words *words)
{
  if (words->window)
    words->node->ops->window_free(&words->window);
  if (words->shared.base)
    words->node->ops->unshare(words->node, &words->shared);
}

int64_t words_add(struct words *words, size_t index, int64_t value)
{
  if (words->word)
    return atomic_fetch_add(&words->word[index * STRIDE], value);
  return words->node->ops->fetch_add(words->window, value, words->home, index * STRIDE);
}

int64_t words_read(struct words *words, size_t index)
{
  return words->word ? atomic_load(&words->word[index * STRIDE]) : words_add(words, index, 0);
}
