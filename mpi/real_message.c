/* Messages between ranks: point-to-point, and those of collectives over messages (real_coll.c). What goes from host to
 * host is given to MPI here, apart from calls, windows and the MPI library's own collectives. */
#include "core/memory.h"
#include "mpi/real.h"
#include "mpi/real_private.h"

MPI_Datatype real_type(enum trm_type type)
{
  const MPI_Datatype types[] = {
    [TRM_FLOAT] = MPI_FLOAT,   [TRM_DOUBLE] = MPI_DOUBLE, [TRM_INT32] = MPI_INT32_T,
    [TRM_INT64] = MPI_INT64_T, [TRM_BYTE] = MPI_UINT8_T,
  };
  return types[type];
}

struct trm_request *real_request_create(struct trm_comm *comm, size_t count, bool collective)
{
  struct trm_request *request = trm_alloc(sizeof *request + count * sizeof(MPI_Request), "a request");
  request->comm = real_of(comm);
  request->count = (int)count;
  request->collective = collective;
  if (request->comm->secure)
    request->sealed = trm_alloc(count * sizeof *request->sealed, "a request");
  return request;
}

static size_t message_bytes(int count, MPI_Datatype type)
{
  int bytes;
  MPI_Type_size(type, &bytes);
  return (size_t)count * (size_t)bytes;
}

void real_message_send(struct trm_request *r, int number, const void *data, int count, MPI_Datatype type, int to,
                       int tag)
{
  const int *nodes = r->comm->nodes;
  if (nodes && nodes[to] != nodes[r->comm->base.rank])
    r->comm->job->sent_between_nodes += message_bytes(count, type);
  if (real_secure_is_remote(r->comm->secure, to))
    r->sealed[number] = real_secure_send(r->comm->secure, r->comm->mpi, data, message_bytes(count, type), to, tag,
                                         &r->mpi[number]);
  else
    MPI_Isend(data, count, type, to, tag, r->comm->mpi, &r->mpi[number]);
}

void real_message_receive(struct trm_request *r, int number, void *data, int count, MPI_Datatype type, int from,
                          int tag)
{
  if (real_secure_is_remote(r->comm->secure, from))
    r->sealed[number] = real_secure_receive(r->comm->secure, r->comm->mpi, data, message_bytes(count, type), from, tag,
                                            &r->mpi[number]);
  else
    MPI_Irecv(data, count, type, from, tag, r->comm->mpi, &r->mpi[number]);
}

void real_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                     struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), chunk = REAL_MESSAGE_BYTES / bytes;
  *request = real_request_create(comm, real_chunk_count(count, chunk), false);
  for (int i = 0; i < (*request)->count; i++) {
    const size_t at = (size_t)i * chunk;
    real_message_send(*request, i, (const char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                      to, tag);
  }
}

void real_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                        struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), chunk = REAL_MESSAGE_BYTES / bytes;
  *request = real_request_create(comm, real_chunk_count(count, chunk), false);
  for (int i = 0; i < (*request)->count; i++) {
    const size_t at = (size_t)i * chunk;
    real_message_receive(*request, i, (char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                         from, tag);
  }
}

/* Frees a request whose messages are complete. */
static void message_end(struct trm_request *r)
{
  for (int i = 0; r->sealed && i < r->count; i++)
    real_sealed_end(&r->sealed[i]);
  if (r->call)
    real_call_end(r->call);
  trm_free(r->sealed);
  trm_free(r);
}

bool real_message_test(struct trm_request **request)
{
  struct trm_request *r = *request;
  if (!r)
    return true;
  for (; r->completed < r->count; r->completed++) {
    int complete;
    MPI_Test(&r->mpi[r->completed], &complete, MPI_STATUS_IGNORE);
    if (!complete)
      return false;
  }
  message_end(r);
  *request = NULL;
  return true;
}

uint64_t trm_comm_sent_between_nodes(struct trm_comm *world)
{
  return real_of(world)->job->sent_between_nodes;
}

const struct trm_comm_ops real_message_ops = {
  .name = "mpi", .send_begin = real_send_begin, .receive_begin = real_receive_begin, .test = real_message_test,
};
