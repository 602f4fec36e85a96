/* Readers under libFuzzer: each gets bytes, and calls the program's reader with them. It may refuse them; a crash, an
 * exit, a leak, memory or time without bound, or a broken promise (fuzz_require) is a finding. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
  const char *bytes; /* (count) */
  size_t count;
};
typedef void fuzz_reader(struct fuzz_input input);

fuzz_reader fuzz_dataset, fuzz_checkpoint, fuzz_encrypted, fuzz_safetensors, fuzz_rows, fuzz_text, fuzz_settings;
fuzz_reader fuzz_model, fuzz_run;

/* Returns the path of a file of this name in a folder of the process; 8 paths are kept. */
const char *fuzz_path(const char *name);
/* Writes the file; returns its path. */
const char *fuzz_file(const char *name, struct fuzz_input content);
/* Reads that file; the caller frees its bytes with free(). */
struct fuzz_input fuzz_content(const char *name);
/* Takes the part of the input up to a line "====", or all of it. */
struct fuzz_input fuzz_part(struct fuzz_input *input);
/* Takes the first character: it selects a variant of the reader. '\0': the input is empty. */
char fuzz_variant(struct fuzz_input *input);
/* Returns a part as a text without NUL. The caller frees it with free(). */
char *fuzz_string(struct fuzz_input part);
/* Applies the edits to an HDF5 file. */
void fuzz_edit_hdf5(const char *path, struct fuzz_input edits);
/* Ends the process if the promise is broken. */
void fuzz_require(int kept, const char *promise);
