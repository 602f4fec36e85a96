/* Writes the first inputs of the fuzzers whose files are binary: seeds FOLDER makes FOLDER/READER/NAME. */
#include <sys/stat.h>

#include "datasets/datasets.h"
#include "exchange/exchange.h"
#include "fuzz_files.h"
#include "tests/unit/dataset_files.h"
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

static const char *folder;

static const char *seeds_path(const char *reader, const char *name)
{
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, reader);
  mkdir(path, 0777);
  snprintf(path, sizeof path, "%s/%s/%s", folder, reader, name);
  return path;
}

static int seeds_datasets(void)
{
  char name[32];
  for (int kind = 0; kind < MADE_KINDS; kind++)
    for (int compress = 0; compress < 2; compress++) {
      snprintf(name, sizeof name, "kind%d-%d.h5", kind, compress);
      TRM_CHECK(made_file(seeds_path("dataset", name), (enum made_kind)kind, 4, 60, 20, compress));
    }
  return TRM_OK;
}

static int seeds_models(void)
{
  struct trm_model model;
  float *weights = fuzz_make_model(&model);
  int status = trm_export_table[0].write(seeds_path("safetensors", "model"), &model, weights);
  trm_free(weights);
  trm_model_free(&model);
  if (status == TRM_OK)
    status = fuzz_make_checkpoint(seeds_path("checkpoint", "plain.h5"), 0);
  if (status == TRM_OK)
    status = fuzz_make_checkpoint(seeds_path("checkpoint", "local.h5"), 1);
  return status;
}

static int seeds_bytes(const char *reader, const char *name, const char *variant, const void *bytes, size_t count)
{
  FILE *file = fopen(seeds_path(reader, name), "wb");
  if (!file || fputs(variant, file) < 0 || fwrite(bytes, 1, count, file) != count || fclose(file) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be written", name);
  return TRM_OK;
}

#ifdef HAVE_ZLIB
static int seeds_gzip(const char *reader, const char *name, const char *variant, void *bytes, size_t count)
{
  unsigned char zipped[4096];
  z_stream stream = {.next_in = bytes, .avail_in = (unsigned)count, .next_out = zipped, .avail_out = sizeof zipped};
  if (deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
      deflate(&stream, Z_FINISH) != Z_STREAM_END || deflateEnd(&stream) != Z_OK)
    return trm_error(TRM_FAILED, "%s: cannot be compressed", name);
  return seeds_bytes(reader, name, variant, zipped, stream.total_out);
}
#endif

static int seeds_files(void)
{
  TRM_CHECK(seeds_bytes("dataset", "edits", "", "\0\201\1\0\0\0\0\1\2\7\0\0\0", 13));
  TRM_CHECK(seeds_bytes("checkpoint", "edits", "", "\1\243\23\2\2\3\0\1\16\7\0\0\0", 13));
  char idx[] = "\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh\n====\n\0\0\10\1\0\0\0\2\1\2";
  char cifar[2 * 3073 + 1] = "";
  cifar[3073] = 9;
  TRM_CHECK(seeds_bytes("rows", "idx", "i", idx, sizeof idx - 1));
  TRM_CHECK(seeds_bytes("rows", "cifar", "r", cifar, sizeof cifar - 1));
#ifdef HAVE_ZLIB
  char csv[] = "a,b,y\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n";
  TRM_CHECK(seeds_gzip("rows", "cifar.gz", "r", cifar, sizeof cifar - 1));
  TRM_CHECK(seeds_gzip("rows", "csv.gz", "c", csv, sizeof csv - 1));
#endif
  return TRM_OK;
}

int main(int argc, char **argv)
{
  if (argc != 2)
    return 2;
  folder = argv[1];
  mkdir(folder, 0777);
  trm_hdf5_init();
  int status = seeds_datasets();
  if (status == TRM_OK)
    status = seeds_models();
  if (status == TRM_OK)
    status = seeds_files();
  if (status != TRM_OK)
    fprintf(stderr, "seeds: %s\n", trm_error_text());
  return status;
}
