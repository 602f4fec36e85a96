/* Implementation of the data set contract over HDF5 (private to datasets/).
 *
 * A split is read in one of three modes:
 *   in memory        it fits into data.memory: read once, shared by the ranks of a node, one window
 *   shuffle windows  it does not fit: two windows in shared memory, filled ahead by a thread of each rank
 *   direct           it does not fit, and the order is the identity: each rank reads the rows of its batches
 * A store holds rows in memory, in blocks of fixed capacity; a split in memory is a store of one block. */
#pragma once

#include "class_balance.h"
#include "order.h"
#include "data_reader.h"
#include "train/dataset.h"
#include "validation.h"

enum loader_mode { LOADER_IN_MEMORY, LOADER_SHUFFLE_WINDOWS, LOADER_DIRECT };

/* Arrays of a store. Block k has `capacity` rows. Arrays that the kind of data does not have are NULL. */
struct store {
  size_t capacity;
  unsigned char *x;     /* dense: (k, capacity, row); tokens: (k, loader_tokens(capacity)) */
  unsigned char *y;     /* (k, capacity, target) */
  int64_t *starts;      /* csr: (k, capacity + 1), offsets into columns and values */
  int32_t *columns;
  float *values;
  size_t entries_capacity;
};

/* Augmentation of training images, applied when a batch is collated (augment.c). */
struct augment {
  bool enabled, flip;
  size_t pad;
  double crop, jitter;
  size_t channels, height, width;
  uint64_t seed;
  float pad_value; /* value of a stored 0 */
};

struct shuffle_windows;

struct loader {
  struct trm_dataset base;
  struct loader *original;    /* of this process, whose data this one reads; NULL: its own */
  char *path;
  struct data_head head;
  struct data_split files;    /* open while rows are read: not in whole mode */
  hid_t file;
  enum loader_mode mode;
  double token_bytes;         /* as in base */
  size_t context, stride;     /* tokens per row, and from the start of one to the next in the file */
  size_t spacing;             /* likewise, in a store */
  uint64_t rows;              /* of the data set */
  uint64_t file_rows, entries; /* of the split in the file, after data.limit: those of the subset and the others */
  struct row_subset subset;   /* the rows of the data set among those of the split */
  bool labels;                /* target values are 0 or 1: train.loss=binary_cross_entropy */
  bool gathered;              /* in memory: the store has only the subset's rows */
  enum block_type x_type;
  size_t row_bytes, y_bytes;  /* of x and y in memory; tokens: spacing * element */
  struct order order;
  struct order_epoch order_epoch;      /* of the caller of fetch */
  uint64_t epoch;             /* of the current fetch */
  struct augment augment;
  struct class_balance balance;
  struct trm_comm *comm, *node; /* node: the ranks that share memory; with an original: those of the process */
  struct trm_shared shared, shared_starts;
  int64_t *block_starts;      /* csr, not whole: (blocks + 1) first entry of each block, in shared_starts */
  struct store store;         /* whole, direct */
  uint64_t direct_first, direct_rows; /* contents of the direct store */
  void *direct_memory;
  size_t direct_capacity;         /* bytes */
  struct shuffle_windows *windows;
  int threads;                /* that collate a batch, and decrypt what is read into memory */
};

/* Returns the row of the file that is row n of the data set. */
uint64_t loader_file_row(const struct loader *loader, uint64_t n);
/* The rows of the file from row `first` of the data set to row first + rows - 1, rows > 0: *count of them. */
uint64_t loader_file_range(const struct loader *loader, uint64_t first, size_t rows, size_t *count);

/* Returns the bytes of x of one block of a store. */
size_t loader_block_bytes(const struct loader *loader, size_t capacity);

/* Returns the bytes of a store of `blocks` blocks of `room` rows; memory, if not NULL: sets its arrays there. */
size_t store_layout(const struct loader *loader, struct store *store, void *memory, size_t blocks, size_t capacity,
                    size_t entries);

/* Reads rows [first, first + rows) from the files into block k of the store, checked; csr entries go to `entry`. */
int loader_read(struct loader *loader, uint64_t first, size_t rows, struct store *store, size_t k, size_t entry);

/* Checks that starts [first, first + rows] ascend and are within the arrays. */
int loader_starts_check(const struct loader *loader, const int64_t *start, size_t rows, uint64_t first);

/* whole: reads the split into shared memory; gathered: the rows of the subset. Collective. */
int loader_read_all(struct loader *loader);
int loader_gather(struct loader *loader);

/* Appends to the batch the rows at positions [low, high): all of one window, whose blocks are in `store`; at NULL: of
 * the direct store. */
void loader_collate(const struct loader *loader, const struct store *store, const struct order_epoch *at,
                    uint64_t window, uint64_t low, uint64_t high, struct trm_host_batch *batch);

/* In memory: computes row (count), the rows of the data set at positions from `position` on. */
void loader_rows_at(const struct loader *loader, const struct order_epoch *at, uint64_t position, size_t count,
                    uint64_t *row);

/* In memory, csr: appends the targets to the batch, and points row (high - low) to the rows in the store. */
void loader_sparse_rows(const struct loader *loader, uint64_t low, uint64_t high, struct trm_host_batch *batch,
                        struct trm_sparse_row *row);

/* Converts n values of x to floats. */
void loader_to_float(const struct loader *loader, float *to, const unsigned char *from, size_t n);

/* Sets loader->augment from data.pad, data.crop, data.jitter and data.flip. Errors: data that are not images, images too
 * small, both a shift and a part, colors of images that are not bytes. */
int augment_configure(struct loader *loader, enum trm_split split, const struct trm_options *options);
/* Writes image x, augmented for its position in the epoch's order, to `to` (C, H, W). */
void augment_row(const struct loader *loader, uint64_t position, const unsigned char *x, float *to);

/* Part of an image, in pixels. */
struct augment_box {
  size_t top, left, height, width;
};

/* Draws the part of the image at a position: area and aspect as Szegedy et al. 2015 (arXiv 1409.4842, section 6). */
struct augment_box augment_draw_box(const struct loader *loader, uint64_t position);
/* Resizes the part of image x to the whole one's size, to (C, H, W): bilinear, between the centers of pixels. */
void augment_resize(const struct loader *loader, const struct augment_box *box, const unsigned char *x, float *to);
/* Multiplies brightness (0), contrast (1) and saturation (2) of an image (channels, pixels) in [0, 1] by the factors, in
 * the order `first`, `second`, and the third; saturation: of three channels, red, green, blue. Clamped each time. */
void augment_colors(float *image, size_t channels, size_t pixels, const float factor[3], int first, int second);

/* Two windows in shared memory. open, close: collective over loader->node. threads that read ahead: 0 or 1. */
int shuffle_windows_open(struct loader *loader, int threads);
int shuffle_windows_fetch(struct loader *loader, uint64_t epoch, uint64_t low, uint64_t high,
                          struct trm_host_batch *batch);
void shuffle_windows_close(struct loader *loader);
