/* The inside of the data set contract over HDF5 (private to datasets/).
 *
 * Three ways to hold a split, one way to gather from it:
 *   whole    it fits into data.memory: read once, shared by the ranks of a node, one window
 *   windows  it does not: two windows in shared memory, filled ahead by a thread of each rank (shuffle_windows.c)
 *   direct   it does not, and the order is the identity: each rank reads the rows it is asked for
 * A store is rows in memory, in blocks of a fixed room; a whole split is a store of one block. */
#ifndef TRM_DATASETS_LOADER_H
#define TRM_DATASETS_LOADER_H

#include "order.h"
#include "data_reader.h"
#include "train/dataset.h"

enum loader_mode { LOADER_IN_MEMORY, LOADER_SHUFFLE_WINDOWS, LOADER_DIRECT };

/* Arrays of a store. Block k has room for `room` rows; the arrays not of the kind are NULL. */
struct store {
  size_t capacity;
  unsigned char *x;     /* dense: (k, room, row); tokens: (k, room * stride + what the last row has more) */
  unsigned char *y;     /* (k, room, target) */
  int64_t *starts;      /* csr: (k, room + 1), offsets into the next two */
  int32_t *columns;
  float *values;
  size_t entries_capacity;
};

/* Augmentation of images while a batch is gathered (augment.c). */
struct augment {
  bool enabled, flip;
  size_t pad;
  size_t channels, height, width;
  uint64_t seed;
  float pad_value; /* what a stored 0 stands for */
};

struct shuffle_windows;

struct loader {
  struct trm_dataset base;
  char *path;
  struct data_head head;
  struct data_split files;    /* open where rows are still read: not in whole mode */
  hid_t file;
  enum loader_mode mode;
  double token_bytes;         /* as the base has it */
  size_t context, stride;     /* tokens a row, and from the begin of one to that of the next */
  uint64_t rows, entries;     /* after the limit */
  enum block_type x_type;
  size_t row_bytes, y_bytes;  /* of x and y in memory; tokens: stride * element */
  struct order order;
  struct order_epoch order_epoch;      /* of the caller of fetch */
  uint64_t epoch;             /* of the fetch at hand */
  struct augment augment;
  struct trm_comm *comm, *node; /* node: the ranks that share memory */
  bool owns_node;
  struct trm_shared shared, shared_starts;
  int64_t *block_starts;      /* csr, not whole: (blocks + 1) first entry of each block, in shared_starts */
  struct store store;         /* whole, direct */
  uint64_t direct_first, direct_rows; /* what the direct store holds */
  void *direct_memory;
  size_t direct_capacity;         /* bytes */
  struct shuffle_windows *windows;
  int threads;                /* that may gather a batch */
};

/* Tokens of `rows` rows that follow one another, the last target included. */
uint64_t loader_tokens(const struct loader *loader, uint64_t rows);

/* Bytes of the x of one block of a store. */
size_t loader_block_bytes(const struct loader *loader, size_t capacity);

/* Bytes of a store of `blocks` blocks of `room` rows; lays it out at `memory` if that is not NULL. */
size_t store_layout(const struct loader *loader, struct store *store, void *memory, size_t blocks, size_t capacity,
                    size_t entries);

/* Reads rows [first, first + rows) from the files into block k of the store, checked; csr entries go to `entry`. */
int loader_read(struct loader *loader, struct data_split *files, uint64_t first, size_t rows, struct store *store,
                size_t k, size_t entry);

/* Checks rows in a store: classes and columns in range, numbers finite. Errors name file and row, counted from
 * `first`. */
int loader_check(const struct loader *loader, const struct store *store, size_t k, size_t row, size_t rows,
                 uint64_t first);

/* whole: reads the split into shared memory. Collective. */
int loader_read_all(struct loader *loader);

/* Appends to the batch the rows at positions [low, high): all of one window, whose blocks are in the store; or rows
 * of the direct store. */
void loader_collate(const struct loader *loader, const struct store *store, const struct order_epoch *at,
                    uint64_t window, uint64_t low, uint64_t high, struct trm_host_batch *batch);
void loader_collate_direct(const struct loader *loader, uint64_t low, uint64_t high, struct trm_host_batch *batch);

/* whole, csr: the targets into the batch, and where the rows lie in the store. */
void loader_sparse_rows(const struct loader *loader, uint64_t low, uint64_t high, struct trm_host_batch *batch,
                        struct trm_sparse_row *row);

/* n values of x as floats. */
void loader_to_float(const struct loader *loader, float *to, const unsigned char *from, size_t n);

/* Reads data.pad and data.flip; refuses data that they do not fit. */
int augment_configure(struct loader *loader, enum trm_split split, const struct trm_options *options);
/* The image x at a position of the epoch's order, moved and mirrored as drawn for it, as floats (C, H, W). */
void augment_row(const struct loader *loader, uint64_t position, const unsigned char *x, float *to);

/* Two windows in shared memory. open, close: collective over loader->node. threads: 0 or 1. */
int shuffle_windows_open(struct loader *loader, int threads);
int shuffle_windows_fetch(struct loader *loader, uint64_t epoch, uint64_t low, uint64_t high,
                          struct trm_host_batch *batch);
void shuffle_windows_close(struct loader *loader);

#endif
