/* trireme bench io */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"

static const char usage[] =
  "usage: [mpiexec -n N] trireme bench io [FILE.h5] [--repeat=R] [--json]\n"
  "\n"
  "Rate of reading the training samples of a data set with every check that training makes, and of reading the\n"
  "same file by read(2) in pieces of 128 KiB, in turns; medians. The ranks divide the file. It is read once before,\n"
  "so both read from the page cache where it fits. Without FILE: an uncompressed set of 256 MB, made in TMPDIR and\n"
  "removed.\n"
  "\n"
  "  --repeat=R  rounds (default 7)\n"
  "  --cold      remove the file from the page cache before each reading, so that it is read from the disk\n"
  "  --json      one JSON object\n";

enum { READ_BYTES = 128 << 10 };

/* Reads this rank's part of the file from begin to end. */
static int io_read_plain(struct trm_comm *comm, const char *path, uint64_t bytes, double *seconds)
{
  char *buffer = trm_alloc(READ_BYTES, "bench: a piece of the file");
  comm->ops->barrier(comm);
  const double begin = comm->ops->clock(comm);
  size_t low, high;
  trm_interval((size_t)bytes, (size_t)comm->size, (size_t)comm->rank, &low, &high);
  errno = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  bool good = file >= 0 && lseek(file, (off_t)low, SEEK_SET) >= 0;
  while (good && low < high) {
    const ssize_t got = read(file, buffer, high - low < READ_BYTES ? high - low : READ_BYTES);
    good = got > 0;
    low += good ? (size_t)got : 0;
  }
  const char *why = file < 0 || errno ? strerror(errno) : "it became shorter";
  const int status = good ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot read: %s", path, why);
  if (file >= 0)
    close(file);
  comm->ops->barrier(comm);
  *seconds = comm->ops->clock(comm) - begin;
  trm_free(buffer);
  return trm_agree(comm, status);
}

struct io_flags {
  int64_t repeat;
  bool json, cold;
};
#define AT(field) offsetof(struct io_flags, field)
static const struct trm_option flags[] = {{"repeat", TRM_OPTION_INT, AT(repeat), "7", RANGE(1, 100000)},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          {"cold", TRM_OPTION_BOOL, AT(cold), NULL, NO_RANGE},
                                          END_OF_FLAGS};

/* Removes the file from the page cache. Collective. */
static void io_forget(struct trm_comm *comm, const char *path)
{
  const int file = comm->rank == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    fdatasync(file); /* what is not on the disk yet stays */
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  comm->ops->barrier(comm);
}

static int io_measure(const struct call *call, const char *path)
{
  const struct io_flags *f = call->values;
  const size_t rounds = (size_t)f->repeat;
  struct trm_comm *comm = call->job->modules.comm;
  uint64_t bytes = 0;
  double ignored;
  struct stat file;
  TRM_CHECK(trm_agree(comm, stat(path, &file) == 0 ? TRM_OK : trm_error(TRM_FAILED, "%s: %s", path, strerror(errno))));
  const uint64_t file_bytes = (uint64_t)file.st_size;
  TRM_CHECK(io_read_plain(comm, path, file_bytes, &ignored));
  TRM_CHECK(trm_data_read_rate(path, comm, &ignored, &bytes));
  double *set = trm_alloc(2 * rounds * sizeof *set, "bench: times"), *plain = set + rounds;
  int status = TRM_OK;
  for (size_t k = 0; k < rounds && status == TRM_OK; k++) {
    if (f->cold)
      io_forget(comm, path);
    status = trm_data_read_rate(path, comm, &set[k], &bytes);
    if (f->cold)
      io_forget(comm, path);
    if (status == TRM_OK)
      status = io_read_plain(comm, path, file_bytes, &plain[k]);
  }
  if (status == TRM_OK) {
    bench_slowest(comm, set, rounds);
    bench_slowest(comm, plain, rounds);
  }
  const double rate = (double)bytes / bench_median(set, rounds);
  const double plain_rate = (double)file_bytes / bench_median(plain, rounds);
  trm_free(set);
  if (status != TRM_OK || comm->rank != 0)
    return status;
  if (!f->json)
    printf("%s: %.1f MB of samples in a file of %.1f MB, %d rank%s\n", path, 1e-6 * (double)bytes,
           1e-6 * (double)file_bytes, comm->size, comm->size == 1 ? "" : "s");
  const struct figure row[] = {
    figure_text("file", NULL, path),
    figure_number("ranks", NULL, comm->size, 1),
    figure_number("bytes", NULL, (double)bytes, 1),
    figure_number("gb_per_s", "  data set   %8.3f GB/s\n", 1e-9 * rate, 1),
    figure_number("read_gb_per_s", "  read(2)    %8.3f GB/s\n", 1e-9 * plain_rate, 1),
    figure_number("share", "  share      %8.1f %%", rate / plain_rate, 100),
  };
  bench_print_row("io", f->json, row, sizeof row / sizeof *row);
  return TRM_OK;
}

/* -- the temporary data set: images in IDX files, imported */

enum { SIDE = 32, IMAGES = 256000000 / (SIDE * SIDE) };

static int io_write_idx(const char *path, bool images)
{
  FILE *out = fopen(path, "w");
  if (out) {
    const uint32_t head[] = {htonl(images ? 0x803 : 0x801), htonl(IMAGES), htonl(SIDE), htonl(SIDE)};
    fwrite(head, sizeof *head, images ? 4 : 2, out);
    uint8_t pattern[SIDE * SIDE];
    for (uint32_t i = 0; i < IMAGES; i++) {
      memset(pattern, (int)(images ? i % 251 : i % 10), sizeof pattern);
      fwrite(pattern, 1, images ? sizeof pattern : 1, out);
    }
  }
  if (!out || ferror(out) | fclose(out))
    return trm_error(TRM_FAILED, "%s: cannot write: %s", path, strerror(errno));
  return TRM_OK;
}

static int io_make_dataset(const char *folder, const char *out)
{
  char *images = trm_format("%s/images", folder), *labels = trm_format("%s/labels", folder);
  const char *const paths[] = {images, labels};
  const struct trm_import_request request = {.paths = paths, .count = 2, .out = out};
  int status = io_write_idx(images, true);
  if (status == TRM_OK)
    status = io_write_idx(labels, false);
  for (const struct trm_importer *i = trm_importer_table; status == TRM_OK && i->name; i++)
    if (!strcmp(i->name, "mnist"))
      status = i->run(&request);
  unlink(images);
  unlink(labels);
  trm_free(images);
  trm_free(labels);
  return status;
}

/* Collective. Rank 0 makes the data set and broadcasts its path. */
static int io_measure_temp(const struct call *call)
{
  struct trm_comm *comm = call->job->modules.comm;
  const char *temporary = getenv("TMPDIR");
  char folder[4096], path[4096 + 8];
  snprintf(folder, sizeof folder, "%s/trireme-io-XXXXXX", temporary && *temporary ? temporary : "/tmp");
  int status = TRM_OK;
  if (comm->rank == 0 && !mkdtemp(folder))
    status = trm_error(TRM_FAILED, "%s: cannot make a temporary folder: %s", folder, strerror(errno));
  comm->ops->broadcast(comm, folder, sizeof folder, TRM_BYTE, 0);
  snprintf(path, sizeof path, "%s/set.h5", folder);
  if (comm->rank == 0 && status == TRM_OK) {
    trm_log_set_quiet(true);
    status = io_make_dataset(folder, path);
    trm_log_set_quiet(call->job->options.log.quiet);
  }
  status = trm_agree(comm, status);
  if (status == TRM_OK)
    status = io_measure(call, path);
  if (comm->rank == 0) {
    unlink(path);
    rmdir(folder);
  }
  return status;
}

static int io_run(const struct call *call)
{
  return call->nargs ? io_measure(call, call->args[0]) : io_measure_temp(call);
}

const struct command bench_io = {
  .name = "bench io", .help = "reading a data set, beside plain reading of the same file",
  .usage = usage, .flags = flags, .bytes = sizeof(struct io_flags), .max_args = 1,
  .job = JOB_OF_RANKS, .run = io_run,
};
