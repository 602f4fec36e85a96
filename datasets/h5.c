/* The lock of HDF5, its errors, and files opened for reading. */
#include "h5.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/security.h"
#include "core/status.h"
#include "datasets.h"

static pthread_mutex_t lock;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* of the thread that gets the lock next */
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static int depth; /* guarded by the lock */
static H5E_auto2_t saved_error_handler;
static void *saved_error_context;
static unsigned saved_plugins;

static void h5_lock_init(void)
{
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &kind);
  pthread_mutexattr_destroy(&kind);
  /* at exit HDF5 would close files that h5_output_discard left open, and crash */
  H5dont_atexit();
}

void trm_hdf5_init(void)
{
  H5_LOCKED;
  H5open();
}

void trm_hdf5_version(char text[32])
{
  unsigned major = 0, minor = 0, release = 0;
  H5_LOCKED;
  H5get_libversion(&major, &minor, &release);
  snprintf(text, 32, "%u.%u.%u", major, minor, release);
}

int h5_lock(void)
{
  pthread_once(&lock_once, h5_lock_init);
  if (pthread_mutex_trylock(&lock) != 0) { /* another thread has it */
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&turn);
  }
  if (depth++ == 0) {
    H5Eget_auto2(H5E_DEFAULT, &saved_error_handler, &saved_error_context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLget_loading_state(&saved_plugins);
    H5PLset_loading_state(0); /* no file may load a library */
  }
  return depth;
}

void h5_unlock(const int *locked)
{
  (void)locked;
  /* restores the embedding program's settings */
  if (--depth == 0) {
    H5Eset_auto2(H5E_DEFAULT, saved_error_handler, saved_error_context);
    H5PLset_loading_state(saved_plugins);
  }
  pthread_mutex_unlock(&lock);
}

void h5_yield(void)
{
  pthread_mutex_lock(&turn); /* whoever waits for the lock has the turn until it gets it */
  pthread_mutex_unlock(&turn);
}

void h5_close(hid_t id)
{
  if (id < 0)
    return;
  H5_LOCKED;
  const hid_t errors = H5Eget_current_stack();
  H5Idec_ref(id);
  H5Eset_current_stack(errors);
}

void h5_close_scoped(const hid_t *id)
{
  h5_close(*id);
}

static herr_t h5_error_reason(unsigned n, const H5E_error2_t *error, void *context)
{
  const char **reason = context;
  (void)n;
  if (error->desc && *error->desc)
    *reason = error->desc;
  return 1; /* the first entry upward is the innermost */
}

int h5_error(const char *path, const char *format, ...)
{
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  const char *reason = NULL;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, h5_error_reason, &reason);
  char copy[384] = "";
  if (reason) {
    /* of a failed call to the system: "..., errno = 28, error message = 'No space left on device', ..." */
    const char *const prefix = "error message = '", *const system = strstr(reason, prefix);
    const char *const from = system ? system + strlen(prefix) : reason;
    snprintf(copy, sizeof copy, ": %.*s", (int)strcspn(from, system ? "'" : "\n"), from);
  }
  return trm_error(TRM_FAILED, "%s: %s%s", path, message, copy);
}

/* -- opening */

hid_t h5_access_plist(void)
{
  const hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
  /* this version has checksums on all HDF5 structures */
  H5Pset_libver_bounds(plist, H5F_LIBVER_V110, H5F_LIBVER_LATEST);
  H5Pset_alignment(plist, 1 << 16, 4096);
  H5Pset_fclose_degree(plist, H5F_CLOSE_STRONG); /* closes objects left open by error paths */
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(plist, false, true); /* many cluster file systems lack locks; only new files are written */
#endif
  return plist;
}

/* Checks the attributes format and version. */
static int h5_format_check(const char *path, hid_t file, const char *format, bool *is_checkpoint)
{
  char *found = h5_get_text(file, "format");
  const bool dataset = found && !strcmp(found, H5_DATASET), checkpoint = found && !strcmp(found, H5_CHECKPOINT);
  const bool expected = !format || !found || !strcmp(format, found);
  trm_free(found);
  if (is_checkpoint)
    *is_checkpoint = checkpoint;
  if (!dataset && !checkpoint)
    return trm_error(TRM_FAILED, "%s: is an HDF5 file, but neither a data set nor a checkpoint of Trireme "
                     "(`trireme data import` makes a data set)", path);
  if (!expected)
    return trm_error(TRM_FAILED, "%s: is a %s, but a %s is needed", path, dataset ? "data set" : "checkpoint",
                     dataset ? "checkpoint" : "data set");
  uint64_t version = 0;
  if (!h5_get_integer(file, "version", &version))
    return h5_error(path, "has no readable version");
  if (version != H5_FORMAT_VERSION)
    return trm_error(TRM_FAILED, "%s: is of version %llu; this program reads version %d", path,
                     (unsigned long long)version, H5_FORMAT_VERSION);
  return TRM_OK;
}

static int h5_file_open(const char *path, const char *format, bool encrypted, bool *is_checkpoint, hid_t *file)
{
  H5_LOCKED;
  H5_CLOSED const hid_t plist = h5_access_plist();
  if (encrypted)
    h5_encrypt(plist);
  *file = H5Fopen(path, H5F_ACC_RDONLY, plist);
  if (*file < 0)
    return h5_error(path, "cannot be opened%s", encrypted ? "" : ", the file is damaged or cut short");
  TRM_CHECK(h5_format_check(path, *file, format, is_checkpoint));
  return h5_contents_check(path, *file);
}

int h5_open(const char *path, const char *format, bool *is_checkpoint, hid_t *file)
{
  struct stat info;
  *file = -1;
  if (stat(path, &info) || access(path, R_OK))
    return trm_error(TRM_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode))
    return trm_error(TRM_FAILED, "%s: is not a regular file", path);
  bool encrypted;
  TRM_CHECK(security_check(path, &encrypted));
  H5_LOCKED;
  const htri_t is_hdf5 = encrypted ? true : H5Fis_hdf5(path);
  if (is_hdf5 < 0)
    return h5_error(path, "cannot be read");
  if (!is_hdf5)
    return trm_error(TRM_FAILED, "%s: is not an HDF5 file%s", path,
                     info.st_size == 0 ? " (it is empty)" : "; `trireme data import` makes one from other formats");
  const int status = h5_file_open(path, format, encrypted, is_checkpoint, file);
  if (status != TRM_OK) {
    h5_close(*file);
    *file = -1;
  }
  return status;
}

int h5_open_parallel(const char *path, struct trm_comm *comm, int threads, hid_t *file)
{
  const MPI_Comm *native = comm->size > 1 ? comm->ops->native(comm) : NULL;
  int status = TRM_OK;
  {
    H5_LOCKED;
    H5_CLOSED const hid_t plist = h5_access_plist();
    if (security_key()) /* each rank decrypts what it reads */
      h5_encrypt(plist);
    else if (native)
      H5Pset_fapl_mpio(plist, *native, MPI_INFO_NULL);
    *file = H5Fopen(path, H5F_ACC_RDONLY, plist);
    if (*file < 0)
      status = h5_error(path, "cannot be opened through MPI-IO");
    else if (security_key())
      h5_decrypt_threads(*file, threads);
  }
  return trm_agree(comm, status);
}
