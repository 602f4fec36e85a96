/* Small helpers over HDF5: the lock, errors, opening, attributes. */
#include "h5.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets.h"

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static int depth; /* guarded by the lock */
static H5E_auto2_t saved_error_handler;
static void *saved_error_context;

static void h5_lock_init(void)
{
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &kind);
  pthread_mutexattr_destroy(&kind);
  /* HDF5's clean-up at the end of the program would take up what h5_discard has left */
  H5dont_atexit();
}

void trm_hdf5_init(void)
{
  h5_enter();
  H5open();
  h5_leave();
}

void h5_enter(void)
{
  pthread_once(&lock_once, h5_lock_init);
  pthread_mutex_lock(&lock);
  if (depth++ == 0) {
    H5Eget_auto2(H5E_DEFAULT, &saved_error_handler, &saved_error_context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  }
}

void h5_leave(void)
{
  /* a program that embeds the library gets its own error handler back */
  if (--depth == 0)
    H5Eset_auto2(H5E_DEFAULT, saved_error_handler, saved_error_context);
  pthread_mutex_unlock(&lock);
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

/* -- opening and closing */

static hid_t h5_access_plist(void)
{
  const hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
  /* checksums on all of HDF5's own structures came with this version: a damaged file is refused, not misread */
  H5Pset_libver_bounds(plist, H5F_LIBVER_V110, H5F_LIBVER_LATEST);
  H5Pset_alignment(plist, 1 << 16, 4096);
  H5Pset_fclose_degree(plist, H5F_CLOSE_STRONG); /* what an error path left open goes with the file */
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(plist, false, true); /* many cluster file systems know no locks; we write to new files only */
#endif
  return plist;
}

/* Is it there, and is it ours? */
static int h5_format_check(const char *path, hid_t file, const char *format, bool *is_checkpoint)
{
  char *found = h5_get_text(file, "format");
  const bool dataset = found && !strcmp(found, H5_DATASET), checkpoint = found && !strcmp(found, H5_CHECKPOINT);
  trm_free(found);
  if (is_checkpoint)
    *is_checkpoint = checkpoint;
  if (!dataset && !checkpoint)
    return trm_error(TRM_FAILED, "%s: is an HDF5 file, but neither a data set nor a checkpoint of Trireme "
                     "(`trireme data import` makes a data set)", path);
  if (format && checkpoint && strcmp(format, H5_CHECKPOINT))
    return trm_error(TRM_FAILED, "%s: is a checkpoint, but a data set is needed", path);
  if (format && dataset && strcmp(format, H5_DATASET))
    return trm_error(TRM_FAILED, "%s: is a data set, but a checkpoint is needed", path);
  uint64_t version = 0;
  if (!h5_get_integer(file, "version", &version))
    return h5_error(path, "has no readable version");
  if (version != H5_FORMAT_VERSION)
    return trm_error(TRM_FAILED, "%s: is of version %llu; this program reads version %d", path,
                     (unsigned long long)version, H5_FORMAT_VERSION);
  return TRM_OK;
}

int h5_open(const char *path, const char *format, bool *is_checkpoint, hid_t *file)
{
  *file = -1;
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &info)) {
    const int reason = errno;
    if (fd >= 0)
      close(fd);
    return trm_error(TRM_FAILED, "%s: cannot be opened: %s", path, strerror(reason));
  }
  close(fd);
  if (!S_ISREG(info.st_mode))
    return trm_error(TRM_FAILED, "%s: is not a regular file", path);
  h5_enter();
  int status = TRM_OK;
  if (H5Fis_hdf5(path) <= 0) {
    status = trm_error(TRM_FAILED, "%s: is not an HDF5 file%s", path,
                       info.st_size == 0 ? " (it is empty)" : "; `trireme data import` makes one from other formats");
  } else {
    const hid_t plist = h5_access_plist();
    *file = H5Fopen(path, H5F_ACC_RDONLY, plist);
    if (*file < 0)
      status = h5_error(path, "cannot be opened, the file is damaged or cut short");
    else
      status = h5_format_check(path, *file, format, is_checkpoint);
    H5Pclose(plist);
    if (status != TRM_OK && *file >= 0) {
      H5Fclose(*file);
      *file = -1;
    }
  }
  h5_leave();
  return status;
}

int h5_open_parallel(const char *path, struct trm_comm *comm, hid_t *file)
{
  const MPI_Comm *native = comm->size > 1 ? comm->ops->native(comm) : NULL;
  h5_enter();
  const hid_t plist = h5_access_plist();
  if (native)
    H5Pset_fapl_mpio(plist, *native, MPI_INFO_NULL);
  *file = H5Fopen(path, H5F_ACC_RDONLY, plist);
  const int status = *file < 0 ? h5_error(path, "cannot be opened through MPI-IO") : TRM_OK;
  H5Pclose(plist);
  h5_leave();
  return trm_agree(comm, status);
}

int h5_create(const char *path, const char *format, hid_t *file)
{
  *file = -1;
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return trm_error(TRM_FAILED, "%s: cannot be created: %s", path, strerror(errno));
  close(fd);
  h5_enter();
  const hid_t plist = h5_access_plist();
  *file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, plist);
  int status = *file < 0 ? h5_error(path, "cannot be created") : TRM_OK;
  H5Pclose(plist);
  if (status == TRM_OK &&
      (!h5_put_text(*file, "format", format) || !h5_put_integer(*file, "version", H5_FORMAT_VERSION)))
    status = h5_error(path, "cannot be written");
  if (status != TRM_OK)
    h5_discard(file, path);
  h5_leave();
  return status;
}

static int h5_fsync(const char *path, int flags)
{
  const int fd = open(path, flags | O_CLOEXEC);
  if (fd < 0)
    return -1;
  int failed = fsync(fd);
  if (failed && errno == EINVAL)
    failed = 0; /* some file systems have no fsync for folders */
  const int reason = errno;
  close(fd);
  errno = reason;
  return failed;
}

int h5_commit(hid_t *file, const char *path, const char *final)
{
  h5_enter();
  if (H5Fflush(*file, H5F_SCOPE_GLOBAL) < 0) {
    const int status = h5_error(path, "cannot be written");
    h5_discard(file, path);
    h5_leave();
    return status;
  }
  if (H5Fclose(*file) < 0) {
    const int status = h5_error(path, "cannot be closed");
    h5_discard(file, path);
    h5_leave();
    return status;
  }
  *file = -1;
  h5_leave();
  if (h5_fsync(path, O_RDONLY) || rename(path, final)) {
    const int reason = errno;
    unlink(path);
    return trm_error(TRM_FAILED, "%s: cannot be written: %s", final, strerror(reason));
  }
  char *copy = trm_strdup(final);
  const int failed = h5_fsync(dirname(copy), O_RDONLY | O_DIRECTORY);
  const int reason = errno;
  trm_free(copy);
  return failed ? trm_error(TRM_FAILED, "%s: its folder cannot be synchronized: %s", final, strerror(reason)) : TRM_OK;
}

void h5_discard(hid_t *file, const char *path)
{
  h5_enter();
  if (*file >= 0) {
    int *fd = NULL;
    const hid_t plist = H5Fget_access_plist(*file);
    if (plist >= 0 && H5Fget_vfd_handle(*file, plist, (void **)&fd) >= 0 && fd && ftruncate(*fd, 0))
      trm_warn("%s: its room on the disk is free only when the program ends: %s", path, strerror(errno));
    if (plist >= 0)
      H5Pclose(plist);
    *file = -1;
  }
  h5_leave();
  unlink(path);
}

/* -- attributes */

static bool h5_attribute_put(hid_t object, const char *name, hid_t file_type, hid_t memory_type, hid_t space,
                             const void *value)
{
  if (H5Aexists(object, name) > 0)
    H5Adelete(object, name);
  const hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
  const bool done = attribute >= 0 && H5Awrite(attribute, memory_type, value) >= 0;
  if (attribute >= 0)
    H5Aclose(attribute);
  H5Sclose(space);
  return done;
}

static hid_t h5_text_type(size_t bytes)
{
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, bytes ? bytes : 1);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

bool h5_put_text(hid_t object, const char *name, const char *text)
{
  h5_enter();
  const hid_t type = h5_text_type(strlen(text));
  const bool done = h5_attribute_put(object, name, type, type, H5Screate(H5S_SCALAR), text);
  H5Tclose(type);
  h5_leave();
  return done;
}

bool h5_put_integer(hid_t object, const char *name, uint64_t value)
{
  h5_enter();
  const bool done = h5_attribute_put(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, H5Screate(H5S_SCALAR), &value);
  h5_leave();
  return done;
}

bool h5_put_real(hid_t object, const char *name, double value)
{
  h5_enter();
  const bool done = h5_attribute_put(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, H5Screate(H5S_SCALAR), &value);
  h5_leave();
  return done;
}

bool h5_put_integers(hid_t object, const char *name, const uint64_t *value, int count)
{
  const hsize_t size = (hsize_t)count;
  h5_enter();
  const hid_t space = count ? H5Screate_simple(1, &size, NULL) : H5Screate(H5S_NULL);
  const bool done = h5_attribute_put(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, space, value);
  h5_leave();
  return done;
}

/* Opens an attribute of the class wanted; *count: its elements. */
static hid_t h5_attribute_open(hid_t object, const char *name, H5T_class_t class, hid_t *type, hssize_t *count)
{
  *type = -1;
  if (H5Aexists(object, name) <= 0)
    return -1;
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  if (attribute < 0)
    return -1;
  const hid_t space = H5Aget_space(attribute);
  *count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
  if (space >= 0)
    H5Sclose(space);
  *type = H5Aget_type(attribute);
  if (*type >= 0 && *count >= 0 && H5Tget_class(*type) == class)
    return attribute;
  if (*type >= 0)
    H5Tclose(*type);
  H5Aclose(attribute);
  return -1;
}

char *h5_get_text(hid_t object, const char *name)
{
  h5_enter();
  char *text = NULL;
  hid_t type;
  hssize_t count;
  const hid_t attribute = h5_attribute_open(object, name, H5T_STRING, &type, &count);
  if (attribute >= 0) {
    if (count == 1 && H5Tis_variable_str(type) > 0) { /* as other writers make them */
      char *variable = NULL;
      const hid_t memory = H5Tcopy(type);
      if (H5Aread(attribute, memory, &variable) >= 0 && variable) {
        text = trm_strdup(variable);
        H5free_memory(variable);
      }
      H5Tclose(memory);
    } else if (count == 1) {
      const size_t bytes = H5Tget_size(type);
      text = trm_alloc(bytes + 1, name);
      if (H5Aread(attribute, type, text) < 0) {
        trm_free(text);
        text = NULL;
      }
    }
    H5Tclose(type);
    H5Aclose(attribute);
  }
  h5_leave();
  return text;
}

static int h5_numbers_get(hid_t object, const char *name, H5T_class_t class, hid_t memory_type, void *value,
                          int capacity)
{
  h5_enter();
  hid_t type;
  hssize_t count = -1;
  const hid_t attribute = h5_attribute_open(object, name, class, &type, &count);
  int found = -1;
  if (attribute >= 0) {
    if (count <= capacity && (count == 0 || H5Aread(attribute, memory_type, value) >= 0))
      found = (int)count;
    H5Tclose(type);
    H5Aclose(attribute);
  }
  h5_leave();
  return found;
}

bool h5_get_integer(hid_t object, const char *name, uint64_t *value)
{
  return h5_numbers_get(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, value, 1) == 1;
}

bool h5_get_real(hid_t object, const char *name, double *value)
{
  return h5_numbers_get(object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, value, 1) == 1;
}

int h5_get_integers(hid_t object, const char *name, uint64_t *value, int capacity)
{
  return h5_numbers_get(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, value, capacity);
}

/* -- lists of texts */

#define COMPRESS_BYTES ((size_t)64 << 10) /* bytes */

bool h5_put_texts(hid_t file, const char *name, const char *const *texts, size_t count)
{
  size_t longest = 1;
  for (size_t i = 0; i < count; i++) {
    const size_t length = strlen(texts[i]);
    longest = length > longest ? length : longest;
  }
  char *flat = trm_alloc(count * longest + 1, name);
  for (size_t i = 0; i < count; i++)
    memcpy(flat + i * longest, texts[i], strlen(texts[i]));
  h5_enter();
  const hid_t type = h5_text_type(longest);
  const hsize_t size = count;
  const hid_t space = H5Screate_simple(1, &size, NULL);
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  if (count) { /* one chunk, with its checksum; long lists of mostly short texts are compressed */
    H5Pset_chunk(plist, 1, &size);
    if (count * longest > COMPRESS_BYTES && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
      H5Pset_deflate(plist, 4);
    H5Pset_fletcher32(plist);
  }
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  const bool done = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, flat) >= 0 &&
                    H5Dclose(dataset) >= 0;
  H5Pclose(plist);
  H5Sclose(space);
  H5Tclose(type);
  h5_leave();
  trm_free(flat);
  return done;
}

bool h5_get_texts(hid_t file, const char *name, size_t count, char ***texts)
{
  *texts = NULL;
  h5_enter();
  bool done = true;
  if (h5_exists(file, name)) {
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const size_t bytes = type < 0 ? 0 : H5Tget_size(type);
    done = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
           H5Sget_simple_extent_npoints(space) == (hssize_t)count && bytes < 1 << 20 && count < 1 << 20 &&
           count * bytes < 1 << 28;
    if (done) {
      char *flat = trm_alloc(count * bytes, name);
      char **list = trm_alloc(count * (sizeof(char *) + bytes + 1), name);
      char *to = (char *)(list + count);
      done = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, flat) >= 0;
      for (size_t i = 0; i < count; i++, to += bytes + 1)
        list[i] = memcpy(to, flat + i * bytes, bytes);
      trm_free(flat);
      if (done)
        *texts = list;
      else
        trm_free(list);
    }
    if (space >= 0)
      H5Sclose(space);
    if (type >= 0)
      H5Tclose(type);
    if (dataset >= 0)
      H5Dclose(dataset);
  }
  h5_leave();
  return done;
}

bool h5_exists(hid_t object, const char *name)
{
  h5_enter();
  const bool found = H5Lexists(object, name, H5P_DEFAULT) > 0;
  h5_leave();
  return found;
}
