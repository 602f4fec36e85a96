/* Importers: an import that succeeds makes a data set that passes all checks. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "datasets/datasets.h"
#include "fuzz.h"

static void fuzz_import(const char *format, struct trm_import_request request, const char *first, const char *second)
{
  const char *const paths[] = {first, second};
  const struct trm_importer *importer = trm_importer_table;
  while (strcmp(importer->name, format) != 0)
    importer++;
  request.paths = paths;
  request.count = second ? 2 : 1;
  request.out = fuzz_path("out.h5");
  request.overwrite = true;
  if (importer->run(&request) != TRM_OK)
    return;
  fuzz_require(trm_data_info(request.out, true, false) == TRM_OK, "an imported data set passes its checks");
  unlink(request.out);
}

/* An image file in a folder of one class. */
static void fuzz_image(struct trm_import_request request, struct fuzz_input input)
{
  char folder[256];
  snprintf(folder, sizeof folder, "%s", fuzz_path("folder"));
  mkdir(folder, 0777);
  mkdir(fuzz_path("folder/class"), 0777);
  fuzz_file("folder/class/image", input);
  request.size = "5x4";
  fuzz_import("images", request, folder, NULL);
}

/* CSV of classes ('c') or values ('v'), or with statistics and categories ('o'), libsvm of classes ('l') or values
 * ('w'), CIFAR-10 ('r'), an image ('p'), arrays of NumPy ('n'), an archive of them ('z'), MNIST. */
void fuzz_rows(struct fuzz_input input)
{
  struct trm_import_request request = {.test_part = -1};
  const char variant = fuzz_variant(&input);
  if (variant == 'p') {
    fuzz_image(request, input);
    return;
  }
  if (variant == 'z') {
    fuzz_import("npz", request, fuzz_file("first", input), NULL);
    return;
  }
  const char *first = fuzz_file("first", fuzz_part(&input));
  const char *second = input.count ? fuzz_file("second", input) : NULL;
  request.target = variant == 'v' || variant == 'w' ? "value" : "class";
  request.normalize = variant == 'w';
  request.standardize = variant == 'o';
  request.missing = variant == 'o' ? "mean" : NULL;
  request.categories = variant == 'o' ? "onehot" : NULL;
  if (variant == 'n')
    fuzz_import("npy", request, first, second);
  else if (variant == 'c' || variant == 'v' || variant == 'o')
    fuzz_import("csv", request, first, second);
  else if (variant == 'l' || variant == 'w')
    fuzz_import("libsvm", request, first, second);
  else
    fuzz_import(variant == 'r' ? "cifar10" : "mnist", request, first, second);
}

/* A text as characters, bytes, pairs learned from it, or pairs of vocab.json and merges.txt, the next parts. */
void fuzz_text(struct fuzz_input input)
{
  struct trm_import_request request = {.test_part = -1};
  const char variant = fuzz_variant(&input);
  const char *text = fuzz_file("text", fuzz_part(&input));
  request.tokens = variant == 'c' ? "characters" : variant == 'b' ? "bytes" : "bpe";
  if (variant == 'l') {
    request.vocabulary = 270;
  } else if (strcmp(request.tokens, "bpe") == 0) {
    request.vocabulary_file = fuzz_file("vocab.json", fuzz_part(&input));
    request.merges = fuzz_file("merges.txt", input);
  }
  fuzz_import("text", request, text, NULL);
}
