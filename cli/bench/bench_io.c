/* trireme bench io */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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
  "  --json      one JSON object\n";

enum { READ_BYTES = 128 << 10 };

static int io_file_size(const char *path, uint64_t *bytes)
{
  struct stat s;
  if (stat(path, &s) != 0)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  *bytes = (uint64_t)s.st_size;
  return TRM_OK;
}

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

static int io_measure(struct trm_job *job, const char *path, size_t rounds, bool json)
{
  struct trm_comm *comm = job->modules.comm;
  uint64_t file_bytes = 0, bytes = 0;
  double ignored;
  TRM_CHECK(trm_agree(comm, io_file_size(path, &file_bytes)));
  TRM_CHECK(io_read_plain(comm, path, file_bytes, &ignored));
  TRM_CHECK(trm_data_read_rate(path, comm, &ignored, &bytes));
  double *set = trm_alloc(2 * rounds * sizeof *set, "bench: times"), *plain = set + rounds;
  int status = TRM_OK;
  for (size_t k = 0; k < rounds && status == TRM_OK; k++) {
    status = trm_data_read_rate(path, comm, &set[k], &bytes);
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
  if (!json) {
    printf("%s: %.1f MB of samples in a file of %.1f MB, %d rank%s\n", path, 1e-6 * (double)bytes,
           1e-6 * (double)file_bytes, comm->size, comm->size == 1 ? "" : "s");
    printf("  data set   %8.3f GB/s\n  read(2)    %8.3f GB/s\n  share      %8.1f %%\n", 1e-9 * rate, 1e-9 * plain_rate,
           100 * rate / plain_rate);
    return TRM_OK;
  }
  struct trm_json line;
  bench_line_open(&line, "io");
  trm_json_text(&line, "file", path);
  trm_json_integer(&line, "ranks", comm->size);
  trm_json_integer(&line, "bytes", (int64_t)bytes);
  trm_json_number(&line, "gb_per_s", 1e-9 * rate);
  trm_json_number(&line, "read_gb_per_s", 1e-9 * plain_rate);
  trm_json_number(&line, "share", rate / plain_rate);
  bench_line_close(&line);
  return TRM_OK;
}

/* -- the temporary data set: images in IDX files, imported */

enum { SIDE = 32, IMAGES = 256000000 / (SIDE * SIDE) };

static void io_write_uint32(FILE *out, uint32_t value)
{
  for (int shift = 24; shift >= 0; shift -= 8)
    fputc((int)(value >> shift & 255), out);
}

static int io_write_idx(const char *path, bool images)
{
  FILE *out = fopen(path, "w");
  if (out) {
    io_write_uint32(out, images ? 0x803 : 0x801);
    io_write_uint32(out, IMAGES);
    if (images) {
      io_write_uint32(out, SIDE);
      io_write_uint32(out, SIDE);
    }
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
static int io_measure_temp(struct trm_job *job, size_t rounds, bool json)
{
  struct trm_comm *comm = job->modules.comm;
  const char *temporary = getenv("TMPDIR");
  char *folder = trm_format("%s/trireme-io-XXXXXX", temporary && *temporary ? temporary : "/tmp");
  int status = TRM_OK;
  if (comm->rank == 0 && !mkdtemp(folder))
    status = trm_error(TRM_FAILED, "%s: cannot make a temporary folder: %s", folder, strerror(errno));
  int64_t length = (int64_t)strlen(folder) + 1;
  comm->ops->broadcast(comm, &length, 1, TRM_INT64, 0);
  char *shared = trm_alloc((size_t)length, "bench: a path");
  if (comm->rank == 0)
    memcpy(shared, folder, (size_t)length);
  comm->ops->broadcast(comm, shared, (size_t)length, TRM_BYTE, 0);
  char *path = trm_format("%s/set.h5", shared);
  if (comm->rank == 0 && status == TRM_OK) {
    trm_log_set_quiet(true);
    status = io_make_dataset(shared, path);
    trm_log_set_quiet(job->options.log.quiet);
  }
  status = trm_agree(comm, status);
  if (status == TRM_OK)
    status = io_measure(job, path, rounds, json);
  if (comm->rank == 0) {
    unlink(path);
    rmdir(shared);
  }
  trm_free(path);
  trm_free(shared);
  trm_free(folder);
  return status;
}

int bench_io(int argc, char **argv)
{
  struct trm_job job;
  int64_t repeat = 7;
  bool json = false, help_shown;
  const struct flag table[] = {{"repeat", FLAG_INTEGER, &repeat, 1, 100000},
                               {"json", FLAG_BOOL, &json, 0, 0},
                               {NULL, FLAG_BOOL, NULL, 0, 0}};
  const struct job_request request = {.command = "bench io", .usage = usage, .flags = table, .nargs = 1};
  int nargs, status = job_open(&job, &request, argc, argv, &nargs, &help_shown);
  if (status == TRM_OK && !help_shown)
    status = nargs ? io_measure(&job, argv[0], (size_t)repeat, json) : io_measure_temp(&job, (size_t)repeat, json);
  trm_job_close(&job);
  return status;
}
