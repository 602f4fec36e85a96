# shellcheck shell=bash
# Compressed gradients between nodes.
mutation 'compress: no error feedback' mpi/compress/exchange.c 's/p\[i\] \+= data\[i\];/p[i] = data[i];/' test_compress
mutation 'compress: sums of two nodes' mpi/compress/exchange.c 's/node < part->nodes->size; node\+\+/node < 2; node++/' \
  test_compress
mutation 'compress: statistics of the first node' mpi/compress/compressor.c \
  's/compress_add_rows\(part, part->data \+ part->n.*;/;/' test_compress
mutation 'compress: bytes not counted' mpi/compress/exchange.c 's/c->strategy->wire\.bytes \+= bytes;/;/' test_compress
mutation 'compress: errors not in checkpoints' mpi/compress/compressor.c \
  's/TRM_CHECK\(trm_strategy_keep\(.*\);/;/' test_sync_compress 2
mutation 'compress: the last slice waits for the first alone' mpi/compress/compressor.c \
  's/for \(int i = c->first; i < c->last; i\+\+\)/for (int i = c->first; i < c->first + 1 \&\& i < c->last; i++)/' \
  test_compress '' 'slower, and no other result'
mutation 'bf16: the sum is not rounded' mpi/compress/cast.c 's/cast->narrow\(array \+ low, sum, n\);/;/' test_compress
mutation 'topk: sent elements stay in the error' mpi/compress/topk.c 's/p\[sent\[i\]\.index\] = 0;/;/' test_compress
mutation 'topk: of equal elements the last' mpi/compress/sparse.c 's/key == kth && equal == 0/key == kth/' test_compress
mutation 'topk: a sample that is too large' mpi/compress/sparse.c 's/if \(candidates < k\)/if (0)/' test_compress
mutation 'topk: one element more' mpi/compress/sparse.c 's/= ceil\(ratio/= 1 + floor(ratio/' test_compress
mutation 'dgc: momentum is not cleared' mpi/compress/dgc.c \
  's/part->state\[0\]\[sent\[i\]\.index\] = part->state\[1\]/part->state[1]/' test_compress
mutation 'dgc: no momentum' mpi/compress/dgc.c 's/momentum \* u\[i\] \+ data/data/' test_compress
mutation 'dgc: no warm-up' mpi/compress/dgc.c 's/if \(update >= strategy->warmup\)/if (true)/' test_compress
mutation 'dgc: clipped to the whole threshold' mpi/sync/sync_clip.c \
  's/strategy->node_clip \/ sqrt\(s->cross\[0\]->size\)/strategy->node_clip/' test_sync_compress 2
mutation 'dgc: clipped by the norm of a slice' mpi/sync/sync_clip.c \
  's/i < sync_units\(strategy->elements\)/i < sync_units(s->bucket[0].slice.high)/' test_sync_compress 3
mutation 'dgc: the first bucket alone is clipped' mpi/sync/sync_clip.c 's/b < s->buckets && scale/b < 1 \&\& scale/' \
  test_sync_compress 2
mutation 'dgc: statistics are clipped' mpi/sync/sync_clip.c \
  's/trained = \{0, .*\};/trained = {0, strategy->elements};/' test_sync_compress 2
mutation 'dgc: clipped by the norm of a part of the model' mpi/sync/sync_clip.c \
  's/sync_reduce_model_norm\(strategy, norm_squared\);/;/' test_sync_compress 5
mutation 'dgc: the sum is clipped, too' src/nn/optimizer.c \
  's/options->strategy\.compress == TRM_COMPRESS_DGC \? 0 : o->clip/o->clip/' test_optimizer
mutation 'sign: the sum of absolute values' mpi/compress/sign.c 's/return sum \/ \(float\)n;/return sum;/' test_compress
mutation 'sign: padding gets a sign' mpi/compress/sign.c 's/part->data\[at - part->low\] = 0;/;/' test_compress
mutation 'qsgd: rounded to nearest' mpi/compress/qsgd.c 's/\* factor \+ u\[i\]/* factor + 0.5f/' test_compress
mutation 'qsgd: all nodes draw the same' mpi/compress/qsgd.c \
  's/\(uint64_t\)part->nodes->rank \* QSGD_NODE_STRIDE \+//' test_compress
mutation 'powersgd: not orthogonal' mpi/compress/powersgd.c 's/powersgd_project\(p, rows, rank, k\);/;/' test_compress
mutation 'powersgd: cold start' mpi/compress/powersgd.c 's/zero = column\[j\] == 0;/zero = true;/' test_compress
mutation 'powersgd: a vanished column stays 0' mpi/compress/powersgd.c \
  's/bool zero = true;/bool zero = c->strategy->updates == 0;/' test_compress
mutation 'powersgd: the error of the sum' mpi/compress/powersgd.c 's/powersgd_add_product\(m, -1/powersgd_add_product(m, 0/' \
  test_compress
mutation 'powersgd: rows that slices cut' mpi/compress/powersgd.c \
  's/begin \+ \(from - begin \+ columns - 1\) \/ columns \* columns : to/from : to/' test_compress
