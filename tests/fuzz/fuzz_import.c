/* Importers: an import that succeeds makes a data set that passes all checks. */
#include <string.h>
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

/* CSV of classes ('c') or values ('v'), libsvm of classes ('l') or values ('w'), CIFAR-10 ('r'), MNIST. */
void fuzz_rows(struct fuzz_input input)
{
  struct trm_import_request request = {.test_part = -1};
  const char variant = fuzz_variant(&input);
  const char *first = fuzz_file("first", fuzz_part(&input));
  const char *second = input.count ? fuzz_file("second", input) : NULL;
  request.target = variant == 'v' || variant == 'w' ? "value" : "class";
  request.normalize = variant == 'w';
  if (variant == 'c' || variant == 'v')
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
