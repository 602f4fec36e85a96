/* trireme data */
#include <string.h>
#include <time.h>

#include "cli/command.h"
#include "cli/data_sheet.h"
#include "cli/loaded.h"
#include "core/log.h"
#include "core/security.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "mpi/real.h"

/* -- make and import */

static const char make_usage[] =
  "usage: trireme data make digits|clusters --out=FILE [--seed=N] [--train=N] [--test=N] [FLAG...]\n"
  "\n"
  "Draws a data set: digits, the same bytes for the same seed on every machine; or Gaussian clusters, each of one\n"
  "class, with centers at random on the unit sphere.\n"
  "\n"
  "  --seed=N           seed of the random numbers (1)\n"
  "  --train=N          samples of the train split (digits 60000, clusters 128000)\n"
  "  --test=N           samples of the test split (10000)\n"
  "  --clusters=N       clusters: how many (32), a multiple of the classes\n"
  "  --classes=N        clusters: classes (4)\n"
  "  --features=N       clusters: dimensions (512)\n"
  "  --noise=X          clusters: standard deviation in each dimension (0.5)\n"
  "  --names=A,B,...    names of the classes, in order (digits: the digits)\n"
  "  --out=FILE         the file to write; it is complete or absent\n"
  "  --overwrite        replace FILE if it exists\n"
  "  --compress=N       0 (fastest to read; default) to 9 (smallest)\n"
  "  --security.key=KEY encrypt FILE; KEY is file:PATH, fd:N or command:COMMAND\n"
  "\n";

static const char import_usage[] =
  "usage: trireme data import FORMAT PATH... --out=FILE [FLAG...]\n"
  "\n"
  "Converts files, plain or gzip, to one HDF5 file with its splits. Of a single file (or folder of\n"
  "images) a part of the rows can become the test split. Labels become classes in ascending order.\n"
  "csv and libsvm: several ranks share the work (mpiexec -n 4 trireme data import csv ...).\n"
  "\n"
  "  --test-part=X      images, libsvm, csv, npy, npz, text: that part of one source (text: 0.1, else none)\n"
  "  --split=RULE       random rows, by class in proportion (default), or the last ones; text: last\n"
  "  --seed=N           seed of the random rows (1)\n"
  "  --target=WHAT      libsvm, csv, npy, npz: \"class\" (default), or \"value\" for regression\n"
  "  --label=COLUMN     csv: name or number (from 1) of the label's column (default: the last one); A,B,... for\n"
  "                     several values, or labels of 0 and 1, a row\n"
  "  --separator=C      csv: one character, or tab (default: comma, semicolon or tab, as in the first record)\n"
  "  --header=yes|no    csv: the first record is one (default: yes if a feature in it is not a number)\n"
  "  --columns=A,B,...  csv: names or numbers of the columns that become features (default: all)\n"
  "  --drop=A,B,...     csv: those that do not\n"
  "  --missing=RULE     csv: values that are empty, ?, NA, N/A, nan, null: error (default), drop the row, or mean of\n"
  "                     the train split (the most frequent category)\n"
  "  --categories=CODE  csv: columns that begin with a text: index (default) of its categories, or onehot\n"
  "  --categorical=A,.. csv: columns of numbers that are names\n"
  "  --standardize      csv: numbers to mean 0 and standard deviation 1, those of the train split\n"
  "  --like=FILE.h5     csv: columns, categories, labels, means and deviations of that data set\n"
  "  --x=NAME --y=NAME  npz: the arrays (default: x and y, or x_train, y_train and x_test, y_test)\n"
  "  --size=HxW         images: resize until H x W is covered, then cut out the center (torchvision's Resize and\n"
  "                     CenterCrop, bilinear with anti-aliasing); default: all images have the size of the first\n"
  "  --channels=1|3     images: grey, or red, green and blue (default: those of the first)\n"
  "  --normalize        libsvm: scale each row to unit Euclidean length\n"
  "  --tokens=WHAT      text: characters (default), bytes, or bpe, byte pairs as in GPT-2\n"
  "  --vocab=N          bpe: learn N tokens from the training part of the text\n"
  "  --vocab-file=FILE  bpe: read the tokens from vocab.json\n"
  "  --merges=FILE      bpe: and their merges from merges.txt\n"
  "  --names=A,B,...    names of the classes, in order (default: the labels as written)\n"
  "  --out=FILE         the file to write; it is complete or absent\n"
  "  --overwrite        replace FILE if it exists\n"
  "  --compress=N       0 (fastest to read) to 9 (smallest); default 4\n"
  "  --security.key=KEY encrypt FILE; KEY is file:PATH, fd:N or command:COMMAND\n"
  "\n";

struct import_flags {
  struct trm_import_request request;
  const char *key;
  int64_t compress;
};
#define AT(field) offsetof(struct import_flags, request.field)
#define FILE_FLAGS(level)                                                                                \
  {"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE}, {"overwrite", TRM_OPTION_BOOL, AT(overwrite), NULL, NO_RANGE}, \
  {"compress", TRM_OPTION_INT, offsetof(struct import_flags, compress), level, RANGE(0, 9)}, \
  {"security.key", TRM_OPTION_TEXT, offsetof(struct import_flags, key), NULL, NO_RANGE}
#define SPLIT_FLAGS                                                          \
  {"test-part", TRM_OPTION_REAL, AT(test_part), "-1", RANGE(-1, 0.9999999)}, \
  {"split", TRM_OPTION_TEXT, AT(split), NULL, NO_RANGE}
#define SEED_FLAG {"seed", TRM_OPTION_INT, AT(seed), "1", RANGE(0, 9e18)}
#define NAMES_FLAG {"names", TRM_OPTION_TEXT, AT(names), NULL, NO_RANGE}
#define TARGET_FLAG {"target", TRM_OPTION_TEXT, AT(target), NULL, NO_RANGE}

/* They carry noise: to compress saves a fifth, or nothing. */
#define MAKE_FLAGS                                                                                      \
  FILE_FLAGS("0"), SEED_FLAG, NAMES_FLAG, {"train", TRM_OPTION_INT, AT(train), NULL, RANGE(1, INT32_MAX)}, \
  {"test", TRM_OPTION_INT, AT(test), NULL, RANGE(1, INT32_MAX)}
static const struct trm_option digits_flags[] = {MAKE_FLAGS, END_OF_FLAGS};
static const struct trm_option clusters_flags[] = {MAKE_FLAGS,
                                                   {"clusters", TRM_OPTION_INT, AT(clusters), NULL, RANGE(1, 1000000)},
                                                   {"classes", TRM_OPTION_INT, AT(classes), NULL, RANGE(1, 1000000)},
                                                   {"features", TRM_OPTION_INT, AT(features), NULL, RANGE(1, 1000000)},
                                                   {"noise", TRM_OPTION_REAL, AT(noise), "0.5", RANGE(0, 1e6)},
                                                   END_OF_FLAGS};
static const struct trm_option image_flags[] = {FILE_FLAGS("4"), NAMES_FLAG, END_OF_FLAGS};
static const struct trm_option folder_flags[] = {FILE_FLAGS("4"),
                                                 SPLIT_FLAGS,
                                                 SEED_FLAG,
                                                 {"size", TRM_OPTION_TEXT, AT(size), NULL, NO_RANGE},
                                                 {"channels", TRM_OPTION_INT, AT(channels), "0", RANGE(0, 3)},
                                                 NAMES_FLAG,
                                                 END_OF_FLAGS};
#define ARRAY_FLAGS FILE_FLAGS("4"), SPLIT_FLAGS, SEED_FLAG, TARGET_FLAG, NAMES_FLAG
static const struct trm_option npy_flags[] = {ARRAY_FLAGS, END_OF_FLAGS};
static const struct trm_option npz_flags[] = {ARRAY_FLAGS,
                                              {"x", TRM_OPTION_TEXT, AT(x), NULL, NO_RANGE},
                                              {"y", TRM_OPTION_TEXT, AT(y), NULL, NO_RANGE},
                                              END_OF_FLAGS};
static const struct trm_option libsvm_flags[] = {FILE_FLAGS("4"),
                                                 SPLIT_FLAGS,
                                                 SEED_FLAG,
                                                 TARGET_FLAG,
                                                 {"normalize", TRM_OPTION_BOOL, AT(normalize), NULL, NO_RANGE},
                                                 NAMES_FLAG,
                                                 END_OF_FLAGS};
static const struct trm_option csv_flags[] = {FILE_FLAGS("4"),
                                              SPLIT_FLAGS,
                                              SEED_FLAG,
                                              TARGET_FLAG,
                                              {"label", TRM_OPTION_TEXT, AT(label), NULL, NO_RANGE},
                                              {"separator", TRM_OPTION_TEXT, AT(separator), NULL, NO_RANGE},
                                              {"header", TRM_OPTION_TEXT, AT(header), NULL, NO_RANGE},
                                              {"columns", TRM_OPTION_TEXT, AT(columns), NULL, NO_RANGE},
                                              {"drop", TRM_OPTION_TEXT, AT(drop), NULL, NO_RANGE},
                                              {"missing", TRM_OPTION_TEXT, AT(missing), NULL, NO_RANGE},
                                              {"categories", TRM_OPTION_TEXT, AT(categories), NULL, NO_RANGE},
                                              {"categorical", TRM_OPTION_TEXT, AT(categorical), NULL, NO_RANGE},
                                              {"standardize", TRM_OPTION_BOOL, AT(standardize), NULL, NO_RANGE},
                                              {"like", TRM_OPTION_TEXT, AT(like), NULL, NO_RANGE},
                                              NAMES_FLAG,
                                              END_OF_FLAGS};
static const struct trm_option text_flags[] = {FILE_FLAGS("4"),
                                               SPLIT_FLAGS,
                                               {"tokens", TRM_OPTION_TEXT, AT(tokens), NULL, NO_RANGE},
                                               {"vocab", TRM_OPTION_INT, AT(vocabulary), NULL, RANGE(257, 1000000)},
                                               {"vocab-file", TRM_OPTION_TEXT, AT(vocabulary_file), NULL, NO_RANGE},
                                               {"merges", TRM_OPTION_TEXT, AT(merges), NULL, NO_RANGE},
                                               END_OF_FLAGS};

static int cmd_data_import(const struct call *call)
{
  struct import_flags *f = call->values;
  struct trm_import_request *request = &f->request;
  const char *command = call->command->name;
  const struct trm_importer *importer = trm_importer_table;
  while (strcmp(importer->name, command_word(call->command)) != 0)
    importer++;
  if (!request->out)
    return trm_error(TRM_USAGE, "%s: --out: no file named; --out=FILE", command);
  struct trm_comm *comm = call->command->job ? call->job->modules.comm : trm_comm_self();
  if (!call->command->job)
    TRM_CHECK(trm_launch_require_single(command));
  TRM_CHECK(trm_agree(comm, security_set_key(f->key)));
  request->comm = comm;
  request->paths = (const char *const *)call->args;
  request->count = call->nargs;
  request->compress = (int)f->compress;
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  TRM_CHECK(importer->run(request));
  if (comm->rank > 0)
    return TRM_OK;
  clock_gettime(CLOCK_MONOTONIC, &end);
  trm_info("%s written in %.1f s", request->out,
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
  return trm_data_info(request->out, false, false);
}

#define IMPORT                                                                                             \
  .usage = import_usage, .bytes = sizeof(struct import_flags), .max_args = ANY_ARGS, .missing = "no path to import", \
  .run = cmd_data_import
static const struct command
  import_mnist = {.name = "data import mnist", .flags = image_flags, IMPORT,
                  .help = "IDX files (MNIST, Fashion-MNIST, ...): a folder of the four files, or IMAGES LABELS "
                          "[IMAGES LABELS]"},
  import_cifar10 = {.name = "data import cifar10", .flags = image_flags, IMPORT,
                    .help = "CIFAR-10, binary version: its folder, or batch files, the last of them the test split"},
  import_images = {.name = "data import images", .flags = folder_flags, IMPORT,
                   .help = "PNG and JPEG files in a folder for each class; folders train, val and test are splits"},
  import_libsvm = {.name = "data import libsvm", .flags = libsvm_flags, IMPORT, .job = JOB_OF_RANKS,
                   .help = "sparse rows, \"label index:value ...\", indices from 1: TRAIN [TEST]"},
  import_csv = {.name = "data import csv", .flags = csv_flags, IMPORT, .job = JOB_OF_RANKS,
                .help = "tables with commas, semicolons or tabs, with a header line or without: TRAIN [TEST]"},
  import_npy = {.name = "data import npy", .flags = npy_flags, IMPORT,
                .help = "arrays of NumPy: X.npy Y.npy [TESTX.npy TESTY.npy]"},
  import_npz = {.name = "data import npz", .flags = npz_flags, IMPORT, .help = "an archive of NumPy's savez"},
  import_text = {.name = "data import text", .flags = text_flags, IMPORT,
                 .help = "a UTF-8 text as a row of characters, bytes or byte pairs, for language models: TRAIN [TEST]"};
static const struct command import_formats = {
  .name = "trireme data import", .help = "convert files to a data set",
  .usage = import_usage,
  .group = (const struct command *const[]){&import_mnist, &import_cifar10, &import_images, &import_libsvm, &import_csv,
                                           &import_npy, &import_npz, &import_text, NULL},
  .member = "format",
};

static const struct command make_digits = {
  .name = "data make digits", .help = "handwritten-like digits, rendered on the spot: 28 x 28 grey images, 10 classes",
  .usage = make_usage, .flags = digits_flags, .bytes = sizeof(struct import_flags),
  .run = cmd_data_import,
};
static const struct command make_clusters = {
  .name = "data make clusters", .help = "Gaussian clusters, 32 in 512 dimensions and 4 classes: vectors of floats",
  .usage = make_usage, .flags = clusters_flags, .bytes = sizeof(struct import_flags),
  .run = cmd_data_import,
};
static const struct command make_sets = {
  .name = "trireme data make", .help = "draw a data set",
  .usage = make_usage, .group = (const struct command *const[]){&make_digits, &make_clusters, NULL},
  .member = "data set to make",
};

/* -- info */

struct info_flags {
  bool check, json;
  const char *key;
};
static const struct trm_option info_flags[] = {
  {"check", TRM_OPTION_BOOL, offsetof(struct info_flags, check), NULL, NO_RANGE},
  {"json", TRM_OPTION_BOOL, offsetof(struct info_flags, json), NULL, NO_RANGE},
  {"security.key", TRM_OPTION_TEXT, offsetof(struct info_flags, key), NULL, NO_RANGE},
  END_OF_FLAGS};

static int cmd_data_info(const struct call *call)
{
  const struct info_flags *f = call->values;
  TRM_CHECK(security_set_key(f->key));
  return trm_data_info(call->args[0], f->check, f->json);
}

static const struct command info = {
  .name = "data info", .help = "describe a data set or a checkpoint",
  .usage = "usage: trireme data info FILE [--check] [--json]\n"
           "\n"
           "Describes a data set; or a checkpoint, with the record of the run that wrote it.\n"
           "\n"
           "  --check  read everything and verify checksums and digest\n"
           "  --json   print one JSON object\n"
           "  --security.key=KEY  the key of an encrypted file: file:PATH, fd:N or command:COMMAND\n",
  .flags = info_flags, .bytes = sizeof(struct info_flags), .max_args = 1, .missing = "no file named",
  .run = cmd_data_info,
};

/* -- head */

struct head_flags {
  int64_t rows;
  enum trm_split split;
  const char *out, *key;
};
static const struct trm_option head_flags[] = {
  {"rows", TRM_OPTION_INT, offsetof(struct head_flags, rows), "0", RANGE(0, 100000)},
  {"split", TRM_OPTION_CHOICE, offsetof(struct head_flags, split), "train", SPLITS},
  {"out", TRM_OPTION_TEXT, offsetof(struct head_flags, out), NULL, NO_RANGE},
  {"security.key", TRM_OPTION_TEXT, offsetof(struct head_flags, key), NULL, NO_RANGE},
  END_OF_FLAGS};

static int cmd_data_head(const struct call *call)
{
  const struct head_flags *f = call->values;
  TRM_CHECK(security_set_key(f->key));
  if (!f->out)
    return trm_data_head(call->args[0], trm_split_name(f->split), f->rows ? (size_t)f->rows : 10);
  struct trm_data_pictures pictures;
  int status = trm_data_pictures_read(call->args[0], trm_split_name(f->split), f->rows ? (size_t)f->rows : 60,
                                      &pictures);
  if (status == TRM_OK)
    status = data_sheet_write(f->out, &pictures);
  trm_data_pictures_free(&pictures);
  return status;
}

static const struct command head = {
  .name = "data head", .help = "show rows of a data set",
  .usage = "usage: trireme data head FILE [--rows=N] [--split=train|validation|test] [--out=SHEET.svg|SHEET.png]\n"
           "\n"
           "Prints the first rows: class or target, then values by name, entries, or text.\n"
           "\n"
           "  --rows=N     how many (10; of a sheet 60)\n"
           "  --split=NAME train (default), validation or test\n"
           "  --out=FILE   images: a sheet of N of them at equal distances, with their classes, as SVG (needs libpng)\n"
           "               or PNG (needs librsvg, too)\n"
           "  --security.key=KEY  the key of an encrypted file: file:PATH, fd:N or command:COMMAND\n",
  .flags = head_flags, .bytes = sizeof(struct head_flags), .max_args = 1, .missing = "no file named",
  .run = cmd_data_head,
};

const struct command cmd_data = {
  .name = "trireme data", .help = "make, import, describe or show data sets",
  .usage = "usage: trireme data make|import|info|head ...\n\n",
  .group = (const struct command *const[]){&make_sets, &import_formats, &info, &head, NULL}, .member = "data action",
};
