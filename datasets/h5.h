/* Helpers over HDF5 (private to datasets/).
 *
 * HDF5 is rarely built thread-safe, and the loader reads ahead in its own thread: every use of HDF5 is in a block that
 * begins with H5_LOCKED, which holds a recursive lock of the process until the end of the block and keeps HDF5 from
 * printing its error stack and from loading plugins. The other functions of this header take the lock themselves.
 * Identifiers that a block opens for itself are declared `H5_CLOSED hid_t`: they are closed at its end, on every path.
 * h5_error() makes one message of the error stack. */
#pragma once

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"
#include "nn/input.h"

#define H5_LOCKED __attribute__((cleanup(h5_unlock), unused)) const int h5_lock_depth = h5_lock()
#define H5_CLOSED __attribute__((cleanup(h5_close_scoped)))

int h5_lock(void);
void h5_unlock(const int *depth);
void h5_close_scoped(const hid_t *id);
/* To be called without the lock, between two uses: a thread that waits for the lock gets it first. */
void h5_yield(void);

/* Closes an identifier of any kind; none if it is negative. Keeps HDF5's error stack, for h5_error. */
void h5_close(hid_t id);

/* Records "PATH: message: HDF5's innermost reason" and returns TRM_FAILED. Must follow the failed call at once: the
 * next call of HDF5 clears the reason. */
int h5_error(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Values of the attribute `format`. */
#define H5_DATASET "trireme-dataset"
#define H5_CHECKPOINT "trireme-checkpoint"
#define H5_FORMAT_VERSION 1

/* Opens a file for reading and checks its format: H5_DATASET, H5_CHECKPOINT, or NULL for either (*is_checkpoint tells
 * which), and its contents. Errors: missing, not HDF5, truncated, of another format or version, and those of
 * h5_contents_check. Not collective. */
int h5_open(const char *path, const char *format, bool *is_checkpoint, hid_t *file);

/* Refuses a file with arrays in other files (external storage, virtual data sets, links), filters other than deflate,
 * shuffle and fletcher32, or more elements than its size allows. */
int h5_contents_check(const char *path, hid_t file);

/* Opens a file through MPI-IO if comm has several ranks and native() is not NULL. Opening and closing are collective
 * over comm. Call it after h5_open succeeded on every rank. threads: of this rank, which decrypt an encrypted file. */
int h5_open_parallel(const char *path, struct trm_comm *comm, int threads, hid_t *file);

/* File access properties of all our files. The caller closes them. */
hid_t h5_access_plist(void);

/* Sets the properties' driver to that of encrypted files, with the key of this process (core/security.h). */
void h5_encrypt(hid_t access_plist);
/* Lets an open encrypted file be decrypted by so many threads. */
void h5_decrypt_threads(hid_t file, int threads);

/* A file that is written under a temporary name in the folder of `path`, and renamed when it is complete. */
struct h5_output {
  hid_t file;            /* -1: none is open */
  char *path, *temporary;
};

/* Creates the file and writes our format attributes. unique: the temporary name is PATH.NUMBER.new, which no other
 * file has, so that several processes may write one path; else PATH.new, for paths with one writer, where the rest
 * of an interrupted write is replaced. */
int h5_output_open(struct h5_output *output, const char *path, const char *format, bool unique);

/* Flushes, closes and synchronizes the file and renames it to its path. On any error it is discarded, and `path` is
 * unchanged. Ends the output either way. */
int h5_output_commit(struct h5_output *output);

/* Removes the file and ends the output; keeps the recorded error. The file is truncated, but neither it nor objects
 * open in it are closed or used: after a failed write, data in HDF5's caches fail again at every close, and HDF5 1.10
 * is left with half-closed objects on which it crashes, at exit if not before. Its descriptor stays open, since HDF5
 * identifies files by inode number, which the system would reuse. */
void h5_output_discard(struct h5_output *output);

/* Attributes of an object. False or NULL: absent or failed. Texts are written in fixed length, so that they are in the
 * object header, which has a checksum. */
bool h5_put_text(hid_t object, const char *name, const char *text);
bool h5_put_integer(hid_t object, const char *name, uint64_t value);
bool h5_put_real(hid_t object, const char *name, double value);
bool h5_put_shape(hid_t object, const char *name, const struct trm_shape *shape);
char *h5_get_text(hid_t object, const char *name); /* owned by the caller: trm_free */
bool h5_get_integer(hid_t object, const char *name, uint64_t *value);
bool h5_get_real(hid_t object, const char *name, double *value);
bool h5_get_shape(hid_t object, const char *name, struct trm_shape *shape);

hid_t h5_text_type(size_t bytes); /* fixed-length UTF-8; the caller closes it */

bool h5_exists(hid_t object, const char *name); /* a link of that name */

/* A data set to create. */
struct h5_array {
  int dims;
  const hsize_t *size;  /* (dims) */
  hid_t file_type, memory_type;
  hsize_t chunk_rows;   /* rows of a chunk, each chunk with a fletcher32 checksum; 0: contiguous, without checksum */
  int deflate;          /* level, 0: none */
  bool grows;           /* rows will be added */
  bool zeros;           /* with chunks: what is not written takes no space, and is 0 */
};
hid_t h5_array_create(hid_t group, const char *name, const struct h5_array *array); /* -1: failed. The caller closes. */
/* Creates, writes and closes a data set. After an error it may stay open: see h5_output_discard. */
bool h5_array_write(hid_t group, const char *name, const struct h5_array *array, const void *data);
/* The same for an array with chunks, or empty, and a caller that does not hold the lock: it is written chunk after chunk,
 * and other threads use HDF5 between them. The error names path, folder (the group's name) and name. */
int h5_array_write_in_turns(const char *path, hid_t group, const char *folder, const char *name,
                            const struct h5_array *array, const void *data);

/* The dimensions of an array of rows of a shape: (rows, shape). Returns their number. */
int h5_row_dims(uint64_t rows, const struct trm_shape *shape, hsize_t size[TRM_MAX_DIMS + 1]);
/* Transfers rows [first, first + rows), of a shape, from or to an open data set. False: failed. */
bool h5_rows_read(hid_t dataset, hid_t type, const struct trm_shape *shape, uint64_t first, size_t rows, void *to);
bool h5_rows_write(hid_t dataset, hid_t type, const struct trm_shape *shape, uint64_t first, size_t rows,
                   const void *from);

/* Opens a data set and reads its dimensions; -1: absent or unreadable, *dims is -1 then. The caller closes. */
hid_t h5_array_open(hid_t group, const char *name, int *dims, hsize_t size[H5S_MAX_RANK]);

/* Lists of texts, as one-dimensional data sets of fixed-length strings. False: damaged or failed. *texts: one block,
 * owned by the caller (trm_free); NULL if absent. */
enum { H5_TEXT_BYTES = 1 << 20 }; /* longer texts are not read */
bool h5_put_texts(hid_t file, const char *name, const char *const *texts, size_t count);
bool h5_get_texts(hid_t file, const char *name, size_t count, char ***texts);
