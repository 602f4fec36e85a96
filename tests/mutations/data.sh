# shellcheck shell=bash
# Data sets: random numbers, orders, validation, augmentation, imports, text.
mutation 'random: the second word twice' src/core/random.c 's/word\[index % 4\]/word[index % 2]/' test_random 1
mutation 'random: one purpose' src/core/random.c 's/stream, \(uint32_t\)purpose\}/stream, 0}/' test_random 1
mutation 'normal: u may be 0' src/core/random.c 's/\(pair\[0\] \+ 1\.0\)/(pair[0] + 0.0)/' test_random 1
mutation 'shuffle: the same order every epoch' datasets/order.c \
  's/order->windows == 1 \? epoch : /order->windows == 1 ? 0 : /' test_datasets 1
mutation 'shuffle: the same windows every epoch' datasets/order.c \
  's/block_mix\(epoch \* UINT64_C\(0x9e3779b97f4a7c15\) \+ window \+ 1\)/block_mix(window + 1)/' test_datasets 1
mutation 'shuffle: the short block in its place' datasets/order.c 's/if \(index\[i\] >= gap\)/if (index[i] > gap)/' \
  test_datasets 1
mutation 'shuffle: windows after the short block' datasets/order.c \
  's/at->last_block_place < window \* order->window_blocks \? start - order_missing_rows\(order\) : start/start/' \
  test_datasets 1
mutation 'validation: rows of both splits' datasets/validation.c \
  's/validation_exclude\(cut, window\[i\], subset\);/;/' test_validation 1
mutation 'validation: rounded down' datasets/validation.c \
  's/round\(cut->fraction \* \(double\)windows\)/floor(cut->fraction * (double)windows)/' test_validation 1
mutation 'validation: a target in both splits' datasets/validation.c \
  's/\(begin - cut->context\) \/ cut->stride \+ 1/(begin - cut->context) \/ cut->stride + 2/' test_validation 1
mutation 'validation: one cut for all seeds' datasets/validation.c \
  's/cut->seed, TRM_RANDOM_VALIDATION/1, TRM_RANDOM_VALIDATION/' test_validation 1
mutation 'crop: never the last place' datasets/augment.c \
  's/augment_draw\(word\[0\], 2 \* pad \+ 1\)/augment_draw(word[0], 2 * pad)/' test_augment 1
mutation 'crop: one draw for both sides' datasets/augment.c 's/augment_draw\(word\[1\]/augment_draw(word[0]/' \
  test_augment 1
mutation 'crop: the same every epoch' datasets/augment.c 's/\(uint32_t\)loader->epoch, position/0, position/' \
  test_augment 1
mutation 'crop: padding of 0' datasets/augment.c 's/loader->x_type == BLOCK_UINT8 \? head->shift : 0/0/' \
  test_augment 1
mutation 'mirror: never' datasets/augment.c 's/augment->flip && word\[2\] >> 31/false/' test_augment 1
mutation 'augmentation of evaluations' datasets/augment.c 's/split == TRM_SPLIT_TRAIN && \(augment/(augment/' \
  test_augment 1
mutation 'csv: a quote within a field' datasets/csv_reader.c \
  "s/\*at != '\"' \|\| at\[1\] == '\"'/*at != '\"'/" test_import 1
mutation 'csv: spaces kept' datasets/csv_reader.c "s/c == ' ' \|\| //" test_import 1
mutation 'csv: byte order mark kept' datasets/csv_reader.c \
  's/reader->line == 1 && !strncmp/reader->line == 0 \&\& !strncmp/' test_import 1
mutation 'csv: separators within quotes' datasets/csv_reader.c 's/!quoted && \*text/*text/' test_import_table 1
mutation 'csv: statistics of all rows' datasets/import_rows.c 's/cut \? PART_TRAIN : PART_ALL, true/PART_ALL, true/' \
  test_import_table 1
mutation 'csv: the least frequent category' datasets/import_csv.c \
  's/count\[place\[k\].word\] > feature/count[place[k].word] < feature/' test_import_table 1
mutation 'numbers: two roundings' datasets/numbers.c 's/mantissa <= EXACT/mantissa <= 8 * EXACT/' test_import_table 1
mutation 'images: no anti-aliasing' datasets/image_fit.c 's/reach = scale > 1 \? scale : 1/reach = 1/' \
  test_import_images 1
mutation 'images: halves of centers up' datasets/image_fit.c 's/ && half % 2\)/)/' test_import_images 1
mutation 'images: damaged JPEG files' datasets/image_jpeg.c 's/if \(level < 0 &&/if (level < -1 \&\&/' \
  test_import_images 1
mutation 'npy: order of bytes' datasets/npy.c 's/items && array->swapped/items \&\& !array->kind/' test_import_numpy 1
mutation 'npy: channels last' datasets/import_npy.c 's/if \(!import->last_channels\)/if (import)/' test_import_numpy 1
mutation 'npz: checksums' datasets/zip_stream.c 's/stream->checksum != stream->member.checksum/false/' \
  test_import_numpy 1
mutation 'csv: NA is a number' datasets/import_csv_columns.c 's/"NA", //' test_import 1
mutation 'libsvm: index 0' datasets/import_libsvm.c 's/if \(index == 0\)/if (index == -1)/' test_import 1
mutation 'libsvm: repeated index' datasets/import_libsvm.c 's/if \(index == before\)/if (index == -before)/' \
  test_import 1
mutation 'libsvm: descending index' datasets/import_libsvm.c 's/if \(index < before\)/if (index < -1)/' test_import 1
mutation 'libsvm: norm of a row without its root' datasets/import_libsvm.c \
  's/values\[i\] \/ sqrt\(sum\)/values[i] \/ sum/' test_import 1
mutation 'sampling: the last of the best' src/nn/sample.c \
  's/scores\[i\] > scores\[best\]/scores[i] >= scores[best]/' test_sample 1
mutation 'sampling: top_k + 1' src/nn/sample.c 's/n = sampling->top_k;/n = sampling->top_k + 1;/' test_sample 1
mutation 'sampling: nucleus one short' src/nn/sample.c \
  's/count == 0 \|\| part < p \* sum/count == 0 || part + candidate[count].weight < p * sum/' test_sample 1
mutation 'sampling: temperature multiplies' src/nn/sample.c \
  's/\(double\)scores\[best\]\) \/ sampling->temperature/(double)scores[best]) * sampling->temperature/' \
  test_sample 1
mutation 'targets beside their rows' datasets/loader.c \
  's/\(files->rows - loader->context - 1\) \/ loader->stride \+ 1/(files->rows - loader->context) \/ loader->stride + 1/' \
  test_datasets 1
mutation 'data.limit ignored' datasets/loader.c 's/loader->file_rows = \(uint64_t\)limit;/;/' test_datasets 1
mutation 'evaluations are shuffled' datasets/loader.c \
  's/shuffle = trains && options->data\.shuffle;/shuffle = options->data.shuffle;/' test_validation 1
mutation 'checkpoints: the digest of the weights unchecked' datasets/checkpoint.c \
  's/strcmp\((hex|sha256|digest), /0 \&\& &/' test_checkpoint 1
