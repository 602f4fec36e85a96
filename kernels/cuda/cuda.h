/* Declarations shared by the files of the CUDA device, in C and in CUDA C++ (private to kernels/cuda).
 *
 * A kernel of the contract is a function cuda_SLOT in a .cu file, which starts kernels on the device's stream
 * (kernel.cuh). Sums have one order for a shape, whatever the processor: there are no atomic additions. */
#pragma once

#include "core/device.h"
#include "kernels/module.h"

TRM_BEGIN_DECLS

struct CUstream_st;
struct CUevent_st;
struct cublasContext;

enum { CUDA_WORKSPACE = 32 << 20 }; /* bytes: what NVIDIA advises for its newest processors */

/* Invalid arguments that a kernel has found in device memory. */
enum cuda_failure_kind { CUDA_BAD_TOKEN, CUDA_BAD_TARGET, CUDA_FAILURES };
struct cuda_failure {
  unsigned long long first[CUDA_FAILURES]; /* the smallest of (row, value), 32 bits each; all ones: none */
  unsigned long long limit[CUDA_FAILURES]; /* values must be below */
};

/* cos and sin of rotary positions, computed once. */
struct cuda_rotary_table {
  float base, *table; /* (T, 2, E / 2): cosines, sines */
  size_t t, half;
};

/* The constants of a run of elements of an update, now (numbers.cu). */
struct cuda_update_constants {
  size_t end; /* of the run */
  float rate, scale, l2, decay;
  float step, root; /* of adam and lamb: rate (lamb: 1) / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
  float gradient;   /* factor of the gradient beside `step`, that of the first moment; 0 but for nadamw */
};

/* The runs of the updates before, which are mostly those of the next ones. */
enum { CUDA_RUNS = 8 };
struct cuda_runs {
  struct trm_update_run *host, *device;
  size_t runs;
};

struct cuda_block;
struct cuda_linear;
struct cuda_pinned;
struct cuda_staging;
struct cuda_state {
  int index; /* of the processor */
  const struct trm_module_host *program;
  struct CUstream_st *stream;     /* of the calls */
  struct CUstream_st *in, *out;   /* of copies beside them, to the device and from it */
  struct CUevent_st *calls;       /* all calls made before the last copy beside them */
  struct cuda_staging *staging;   /* of uploads */
  struct cuda_pinned *pinned;     /* memory of the host */
  struct cublasContext *products;
  void *workspace;            /* CUDA_WORKSPACE bytes, of cuBLAS and cuBLASLt; NULL: there is no memory for it */
  struct cuda_linear *linear; /* of linear.c */
  struct cuda_failure *failure, *failure_read; /* in device memory; in pinned host memory */
  struct cuda_rotary_table rotary;
  struct cuda_runs runs[CUDA_RUNS]; /* in no order */
  int runs_next;                    /* the next one to replace */
  struct cuda_block *blocks; /* of alloc */
  void *scratch;
  size_t scratch_bytes;
  bool recording, refused; /* calls are being recorded; one of them cannot be */
  uint64_t replaced;       /* how often memory of this device that recordings may use was replaced */
  char error[192]; /* the first one, until sync reports it */
};

static inline struct cuda_state *cuda_state_of(const struct trm_device *device)
{
  return (struct cuda_state *)device->impl;
}

/* Makes the device's processor the calling thread's, and returns its stream. */
struct CUstream_st *cuda_stream(const struct trm_device *device);

/* Records an error of the runtime (0: none) for the next sync; what: the call. While calls are recorded: that the
 * recording fails. */
void cuda_check(const struct trm_device *device, int error, const char *what);
void cuda_fail(const struct trm_device *device, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Device memory for the current call, not zeroed, valid until the next call of this function. NULL: there is none, and
 * the failure is recorded. */
void *cuda_scratch(struct trm_device *device, size_t bytes);

/* Returns true while calls are recorded; the recording then fails. A call that cannot be recorded does nothing. */
bool cuda_refuses(const struct trm_device *device);

/* Take and return what copies need; the stream of the calls is there. open returns an error of the runtime. */
int cuda_copies_open(struct cuda_state *state);
void cuda_copies_close(struct cuda_state *state);

/* The same for linear layers; open returns a status of cuBLAS. */
int cuda_linear_open(struct cuda_state *state);
void cuda_linear_close(struct cuda_state *state);

/* Frees all blocks, the scratch memory and the workspace, which nothing uses. */
void cuda_release_all(struct cuda_state *state);

/* -- slots of the contract (core/device.h) in C */

int cuda_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory);
void cuda_release(struct trm_device *device, void *memory);
void cuda_upload(struct trm_device *device, void *to, const void *host, size_t bytes);
void cuda_download(struct trm_device *device, void *host, const void *from, size_t bytes);
void cuda_copy(struct trm_device *device, void *to, const void *from, size_t bytes);
void cuda_upload_begin(struct trm_device *device, void *to, const void *host, size_t bytes, struct trm_event *event);
void cuda_download_begin(struct trm_device *device, void *host, const void *from, size_t bytes,
                         struct trm_event *event);
void cuda_await(struct trm_device *device, struct trm_event *event);
bool cuda_event_done(struct trm_device *device, struct trm_event *event);
void cuda_event_wait(struct trm_device *device, struct trm_event *event);
void cuda_event_free(struct trm_device *device, struct trm_event *event);
void cuda_pin(struct trm_device *device, void *host, size_t bytes);
void cuda_unpin(struct trm_device *device, void *host);
bool cuda_record_begin(struct trm_device *device);
struct trm_recording *cuda_record_end(struct trm_device *device);
bool cuda_replay(struct trm_device *device, struct trm_recording *recording);
void cuda_recording_free(struct trm_device *device, struct trm_recording *recording);

/* -- slots in CUDA C++ */

void cuda_fill(struct trm_device *device, float *to, float value, size_t n);

/* A row-major matrix (rows, columns), and a copy (rows_to, columns_to), which may have another type of values, another
 * leading dimension, and zeros in rows and columns that the matrix does not have. */
struct cuda_rows {
  const void *from;
  void *to;
  size_t rows, columns, ld_from, rows_to, columns_to, ld_to;
  enum trm_value_type type_from, type_to;
};

void cuda_copy_rows(struct trm_device *device, const struct cuda_rows *call);

/* Computes the constants of an update of n elements, in scratch memory; run NULL: of all. lamb: of its direction.
 * Returns their number; 0: a failure is recorded. */
size_t cuda_update_constants(struct trm_device *device, const struct trm_update *update,
                             const struct trm_update_run *run, size_t runs, const float *ratio, size_t n, bool lamb,
                             struct cuda_update_constants **constants);

/* The kernels of the contract (core/kernels.h); cuda.c lists those that this device does not have. */
#define CUDA_DECLARE(slot, type) void cuda_##slot(struct trm_device *device, const struct type *call);
TRM_KERNELS(CUDA_DECLARE)
TRM_FUSED_KERNELS(CUDA_DECLARE)
#undef CUDA_DECLARE

TRM_END_DECLS
