#include <config.h>

#include "mpi/real_secure.h"

#include <pthread.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/security.h"
#include "core/status.h"
#include "mpi/real_private.h"

#ifdef HAVE_SODIUM
#include "core/chunk_cipher.h"

enum { KEY_BYTES = CHUNK_KEY_BYTES, TAGS_IN_PAGE = 256, TAG_PAGES = 32768 / TAGS_IN_PAGE };

enum direction { SEND, RECEIVE, DIRECTIONS };

/* Messages in one direction between this rank and another. */
struct stream {
  struct chunk_cipher *cipher; /* NULL: none so far */
  uint64_t *count[TAG_PAGES];  /* (TAGS_IN_PAGE) messages so far of each tag; NULL: none */
};

/* Nodes of the ranks of the job; one for all communicators. */
struct real_secure_job {
  int communicators; /* that use it */
  int *node;         /* (ranks of the job) */
  struct secret_key key;
};

struct real_secure {
  struct real_secure_job *job;
  struct secret_key id; /* 32 bytes: equal on the communicator's ranks, unlike all others' */
  int rank, size;
  bool *remote;             /* (size) */
  struct stream (*peer)[DIRECTIONS]; /* (size) by direction */
  pthread_mutex_t lock;
};

/* -- keys */

/* Every rank's contribution makes the key one that no other job has, even if those of others were replaced on their
 * way. */
static void secure_make_key(struct real_secure_job *job, const struct real_comm *real)
{
  const size_t size = (size_t)real->base.size;
  struct secret_key mine;
  uint8_t *all = trm_alloc(size * KEY_BYTES, "a key");
  secret_key_random(&mine);
  MPI_Allgather(mine.bytes, KEY_BYTES, MPI_UINT8_T, all, KEY_BYTES, MPI_UINT8_T, real->mpi);
  secret_key_derive(&job->key, security_key(), all, size * KEY_BYTES);
  trm_free(all);
}

/* Origins of keys: all their bytes are set, and no two kinds have the same length. */
struct pair_origin {
  uint8_t id[KEY_BYTES];
  int32_t from, to;
};

struct child_origin {
  uint8_t id[KEY_BYTES];
  uint64_t number, first;
};

static struct chunk_cipher *secure_cipher(struct real_secure *s, enum direction direction, int rank)
{
  struct stream *stream = &s->peer[rank][direction];
  if (!stream->cipher) {
    const enum cipher cipher = chunk_cipher_has(CIPHER_AES256_GCM) ? CIPHER_AES256_GCM : CIPHER_CHACHA20_POLY1305;
    struct pair_origin pair = {.from = direction == SEND ? s->rank : rank, .to = direction == SEND ? rank : s->rank};
    struct secret_key key;
    memcpy(pair.id, s->id.bytes, sizeof pair.id);
    secret_key_derive(&key, &s->job->key, &pair, sizeof pair);
    stream->cipher = chunk_cipher_make(cipher, key.bytes);
    secret_key_clear(&key);
  }
  return stream->cipher;
}

/* -- making them */

/* Ranks of the job: those of mpi. to: (size of mpi) */
static void secure_job_ranks(MPI_Comm mpi, int size, int *to)
{
  MPI_Group group, world;
  int *rank = trm_alloc((size_t)size * sizeof *rank, "encryption of messages");
  for (int i = 0; i < size; i++)
    rank[i] = i;
  MPI_Comm_group(mpi, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, rank, world, to);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  trm_free(rank);
}

static struct real_secure *secure_make(struct real_secure_job *job, MPI_Comm mpi)
{
  struct real_secure *s = trm_alloc(sizeof *s, "encryption of messages");
  s->job = job;
  job->communicators++;
  MPI_Comm_rank(mpi, &s->rank);
  MPI_Comm_size(mpi, &s->size);
  const size_t size = (size_t)s->size;
  int *rank = trm_alloc(size * sizeof *rank, "encryption of messages");
  secure_job_ranks(mpi, s->size, rank);
  s->remote = trm_alloc(size * sizeof *s->remote, "encryption of messages");
  for (size_t i = 0; i < size; i++)
    s->remote[i] = job->node[rank[i]] != job->node[rank[s->rank]];
  s->peer = trm_alloc(size * sizeof *s->peer, "encryption of messages");
  pthread_mutex_init(&s->lock, NULL);
  trm_free(rank);
  return s;
}

/* Each rank's node is the job's rank of the node's first one. */
static int *secure_find_nodes(struct real_comm *real)
{
  struct trm_comm *node = real_split_node(&real->base, TRM_SHARE_NODE);
  int first = real->base.rank, *nodes = trm_alloc((size_t)real->base.size * sizeof *nodes, "encryption of messages");
  MPI_Bcast(&first, 1, MPI_INT, 0, real_of(node)->mpi);
  real_release(node);
  MPI_Allgather(&first, 1, MPI_INT, nodes, 1, MPI_INT, real->mpi);
  return nodes;
}

int real_secure_begin(struct real_comm *real)
{
  TRM_CHECK(trm_agree(&real->base, security_key() ? TRM_OK : trm_error(
    TRM_USAGE, "run.encrypt: needs security.key=file:PATH, from which the keys of messages are derived")));
  struct real_secure_job *job = trm_alloc(sizeof *job, "encryption of messages");
  job->node = secure_find_nodes(real);
  secure_make_key(job, real);
  real->secure = secure_make(job, real->mpi);
  secret_key_derive(&real->secure->id, &job->key, "job", 3);
  real->base.device_memory = NULL; /* messages are sealed in host memory */
  return TRM_OK;
}

struct real_secure *real_secure_derive(const struct real_secure *parent, MPI_Comm mpi, uint64_t number)
{
  if (!parent)
    return NULL;
  struct real_secure *s = secure_make(parent->job, mpi);
  struct child_origin origin = {.number = number};
  int first;
  secure_job_ranks(mpi, 1, &first);
  origin.first = (uint64_t)first;
  memcpy(origin.id, parent->id.bytes, sizeof origin.id);
  secret_key_derive(&s->id, &s->job->key, &origin, sizeof origin);
  return s;
}

void real_secure_free(struct real_secure *s)
{
  if (!s)
    return;
  for (int i = 0; i < s->size; i++)
    for (int direction = 0; direction < DIRECTIONS; direction++) {
      struct stream *stream = &s->peer[i][direction];
      chunk_cipher_free(stream->cipher);
      for (int page = 0; page < TAG_PAGES; page++)
        trm_free(stream->count[page]);
    }
  if (--s->job->communicators == 0) {
    trm_free(s->job->node);
    secret_key_clear(&s->job->key);
    trm_free(s->job);
  }
  pthread_mutex_destroy(&s->lock);
  trm_free(s->peer);
  trm_free(s->remote);
  trm_free(s);
}

bool real_secure_is_remote(const struct real_secure *s, int rank)
{
  return s && s->remote[rank];
}

bool real_secure_has_remote(const struct real_secure *s)
{
  bool any = false;
  for (int i = 0; s && i < s->size; i++)
    any |= s->remote[i];
  return any;
}

/* -- messages */

struct real_sealed {
  struct real_secure *secure;
  void *to; /* where what is received belongs; NULL: it is sent */
  size_t bytes;
  int rank, tag;
  uint64_t number;
  uint8_t message[]; /* (bytes + CHUNK_TAG_BYTES) */
};

/* number (8): 16 bits of the tag, 48 of the message's number. */
static void secure_nonce(uint8_t *to, int tag, uint64_t number)
{
  const uint64_t value = (uint64_t)tag << 48 | number;
  for (int i = 0; i < CHUNK_NUMBER_BYTES; i++)
    to[i] = (uint8_t)(value >> 8 * i);
}

/* Returns a message with the next number of its rank, direction and tag. With the lock. */
static struct real_sealed *secure_begin_message(struct real_secure *s, enum direction direction, int rank, int tag,
                                                size_t bytes)
{
  uint64_t **page = &s->peer[rank][direction].count[tag / TAGS_IN_PAGE];
  if (!*page)
    *page = trm_alloc(TAGS_IN_PAGE * sizeof **page, "encryption of messages");
  struct real_sealed *sealed = trm_alloc(sizeof *sealed + bytes + CHUNK_TAG_BYTES, "an encrypted message");
  *sealed = (struct real_sealed){
    .secure = s, .bytes = bytes, .rank = rank, .tag = tag, .number = (*page)[tag % TAGS_IN_PAGE]++};
  return sealed;
}

/* Messages are numbered in the order of MPI's calls: both are made with the lock. */
struct real_sealed *real_secure_send(struct real_secure *s, MPI_Comm mpi, const void *data, size_t bytes, int rank,
                                     int tag, MPI_Request *request)
{
  uint8_t nonce[CHUNK_NUMBER_BYTES];
  pthread_mutex_lock(&s->lock);
  struct real_sealed *sealed = secure_begin_message(s, SEND, rank, tag, bytes);
  secure_nonce(nonce, tag, sealed->number);
  chunk_seal(secure_cipher(s, SEND, rank), nonce, bytes, bytes, data, sealed->message, sealed->message + bytes);
  MPI_Isend(sealed->message, (int)(bytes + CHUNK_TAG_BYTES), MPI_BYTE, rank, tag, mpi, request);
  pthread_mutex_unlock(&s->lock);
  return sealed;
}

struct real_sealed *real_secure_receive(struct real_secure *s, MPI_Comm mpi, void *data, size_t bytes, int rank,
                                        int tag, MPI_Request *request)
{
  pthread_mutex_lock(&s->lock);
  struct real_sealed *sealed = secure_begin_message(s, RECEIVE, rank, tag, bytes);
  sealed->to = data;
  MPI_Irecv(sealed->message, (int)(bytes + CHUNK_TAG_BYTES), MPI_BYTE, rank, tag, mpi, request);
  pthread_mutex_unlock(&s->lock);
  return sealed;
}

void real_secure_take(struct real_secure *s, MPI_Message *found, const MPI_Status *probed, void *data, size_t bytes)
{
  pthread_mutex_lock(&s->lock);
  struct real_sealed *sealed = secure_begin_message(s, RECEIVE, probed->MPI_SOURCE, probed->MPI_TAG, bytes);
  pthread_mutex_unlock(&s->lock);
  sealed->to = data;
  MPI_Mrecv(sealed->message, (int)(bytes + CHUNK_TAG_BYTES), MPI_BYTE, found, MPI_STATUS_IGNORE);
  real_sealed_end(&sealed);
}

static void secure_open(struct real_sealed *sealed)
{
  struct real_secure *s = sealed->secure;
  uint8_t nonce[CHUNK_NUMBER_BYTES];
  secure_nonce(nonce, sealed->tag, sealed->number);
  pthread_mutex_lock(&s->lock);
  const bool good = chunk_unseal(secure_cipher(s, RECEIVE, sealed->rank), nonce, sealed->bytes, sealed->bytes,
                                 sealed->message, sealed->to, sealed->message + sealed->bytes);
  pthread_mutex_unlock(&s->lock);
  if (!good)
    trm_abort_on_error(trm_error(
      TRM_FAILED, "run.encrypt: a message of rank %d of the %d ranks of a communicator to its rank %d does not verify: "
      "it was changed on its way, or that rank has another security.key", sealed->rank, s->size, s->rank));
}

void real_sealed_end(struct real_sealed **ended)
{
  struct real_sealed *sealed = *ended;
  if (!sealed)
    return;
  if (sealed->to)
    secure_open(sealed);
  trm_free(sealed);
  *ended = NULL;
}

#else /* without libsodium */

int real_secure_begin(struct real_comm *real)
{
  (void)real;
  return secret_key_available("run.encrypt");
}

struct real_secure *real_secure_derive(const struct real_secure *parent, MPI_Comm mpi, uint64_t number)
{
  (void)parent, (void)mpi, (void)number;
  return NULL;
}

void real_secure_free(struct real_secure *secure)
{
  (void)secure;
}

struct real_sealed *real_secure_send(struct real_secure *secure, MPI_Comm mpi, const void *data, size_t bytes, int rank,
                                     int tag, MPI_Request *request)
{
  (void)secure, (void)mpi, (void)data, (void)bytes, (void)rank, (void)tag, (void)request;
  return NULL;
}

struct real_sealed *real_secure_receive(struct real_secure *secure, MPI_Comm mpi, void *data, size_t bytes, int rank,
                                        int tag, MPI_Request *request)
{
  (void)secure, (void)mpi, (void)data, (void)bytes, (void)rank, (void)tag, (void)request;
  return NULL;
}

void real_secure_take(struct real_secure *secure, MPI_Message *found, const MPI_Status *probed, void *data,
                      size_t bytes)
{
  (void)secure, (void)found, (void)probed, (void)data, (void)bytes;
}

bool real_secure_is_remote(const struct real_secure *secure, int rank)
{
  (void)secure, (void)rank;
  return false;
}

bool real_secure_has_remote(const struct real_secure *secure)
{
  (void)secure;
  return false;
}

void real_sealed_end(struct real_sealed **sealed)
{
  (void)sealed;
}
#endif
