/* Arrays of NumPy, files .npy (format versions 1 to 3) and members of .npz archives (private to datasets/). An array is
 * read once, from its first row to its last. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_MAX_DIMS 5

struct zip_stream;

struct npy_array {
  struct zip_stream *stream;
  char *name;             /* for messages: "FILE" or "FILE: MEMBER" */
  char kind;              /* 'b' bool, 'i', 'u' integers, 'f' floats; texts: 'U' of UTF-32, 'S' of bytes */
  size_t item;            /* bytes of an element */
  size_t unit;            /* of a number or character */
  bool swapped;           /* bytes are in the other order */
  int dims;
  uint64_t size[NPY_MAX_DIMS];
  size_t row_items;       /* elements of a row: product of size[1], ... */
};

/* Opens an array. member: of an archive, without .npy; NULL: `path` is a .npy file. Errors: no array, one of objects
 * or complex numbers, in Fortran order, of another length than its shape says, damaged. The caller closes, also
 * after an error. */
int npy_open(struct npy_array *array, const char *path, const char *member);
void npy_close(struct npy_array *array);

/* Reads the next rows as they are, (rows, row_items) elements in the order of this machine's bytes. After the last row
 * the member's checksum is compared. */
int npy_read(struct npy_array *array, size_t rows, void *to);
double npy_value(const struct npy_array *array, const void *rows, size_t element);

bool npy_is_text(const struct npy_array *array);
/* A text as UTF-8, owned by the caller (trm_free). NULL and an error: it is none, or empty. */
char *npy_text(const struct npy_array *array, const void *rows, size_t element);
