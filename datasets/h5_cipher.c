/* A file driver of HDF5 for encrypted files (core/cipher_file.h): everything above it reads and writes as ever. */
#include "h5.h"

#include <fcntl.h>
#include <string.h>

#include "core/memory.h"
#include "core/security.h"
#include "core/status.h"
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

struct driver_file {
  H5FD_t base; /* must be first */
  struct cipher_file *cipher;
  haddr_t allocated; /* the end of what HDF5 has given out */
  bool writing;
};

/* Puts the recorded error on HDF5's stack, without the path, which h5_error adds. */
static void cipher_push_error(hid_t minor)
{
  const char *text = trm_error_text(), *colon = strstr(text, ": ");
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL, minor, "%s", colon ? colon + 2 : text);
}

static H5FD_t *cipher_open(const char *name, unsigned flags, hid_t plist, haddr_t max)
{
  const struct cipher_format format = cipher_format_default();
  const bool writing = flags & H5F_ACC_TRUNC;
  struct cipher_file *cipher = NULL;
  int status;
  (void)plist, (void)max;
  if (writing) {
    const int fd = open(name, O_RDWR | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    status = fd < 0 ? trm_error(TRM_FAILED, "%s: cannot be opened", name)
                    : cipher_file_create(&cipher, fd, name, security_key(), &format);
  } else {
    status = cipher_file_open(&cipher, name, security_key());
  }
  if (status != TRM_OK) {
    cipher_push_error(H5E_CANTOPENFILE);
    return NULL;
  }
  struct driver_file *file = trm_alloc(sizeof *file, "an open file");
  file->cipher = cipher;
  file->writing = writing;
  return &file->base;
}

/* Completes a file that was written. h5_output_discard never comes here. */
static herr_t cipher_close(H5FD_t *base)
{
  struct driver_file *file = (struct driver_file *)base;
  const int status = file->writing ? cipher_file_commit(file->cipher) : TRM_OK;
  if (status != TRM_OK)
    cipher_push_error(H5E_CANTCLOSEFILE);
  cipher_file_close(file->cipher);
  trm_free(file);
  return status == TRM_OK ? 0 : -1;
}

static herr_t cipher_query(const H5FD_t *base, unsigned long *flags)
{
  (void)base;
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

static haddr_t cipher_get_allocated(const H5FD_t *base, H5FD_mem_t type)
{
  (void)type;
  return ((const struct driver_file *)base)->allocated;
}

static herr_t cipher_set_allocated(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
  (void)type;
  ((struct driver_file *)base)->allocated = end;
  return 0;
}

static haddr_t cipher_get_end(const H5FD_t *base, H5FD_mem_t type)
{
  (void)type;
  return cipher_file_bytes(((const struct driver_file *)base)->cipher);
}

static herr_t cipher_read(H5FD_t *base, H5FD_mem_t type, hid_t plist, haddr_t at, size_t bytes, void *to)
{
  (void)type, (void)plist;
  if (cipher_file_read(((struct driver_file *)base)->cipher, at, bytes, to) == TRM_OK)
    return 0;
  cipher_push_error(H5E_READERROR);
  return -1;
}

static herr_t cipher_write(H5FD_t *base, H5FD_mem_t type, hid_t plist, haddr_t at, size_t bytes, const void *from)
{
  (void)type, (void)plist;
  if (cipher_file_write(((struct driver_file *)base)->cipher, at, bytes, from) == TRM_OK)
    return 0;
  cipher_push_error(H5E_WRITEERROR);
  return -1;
}

static herr_t cipher_get_handle(H5FD_t *base, hid_t plist, void **handle)
{
  (void)plist;
  *handle = ((struct driver_file *)base)->cipher;
  return 0;
}

static herr_t cipher_truncate(H5FD_t *base, hid_t plist, hbool_t closing)
{
  struct driver_file *file = (struct driver_file *)base;
  (void)plist, (void)closing;
  if (file->writing)
    cipher_file_resize(file->cipher, file->allocated);
  return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
  .version = H5FD_CLASS_VERSION,
  .value = (H5FD_class_value_t)600, /* of the range for drivers that are not registered with the HDF Group */
#endif
  .name = "trireme-encrypted",
  .maxaddr = INT64_MAX / 2,
  .fc_degree = H5F_CLOSE_STRONG,
  .open = cipher_open,
  .close = cipher_close,
  .query = cipher_query,
  .get_eoa = cipher_get_allocated,
  .set_eoa = cipher_set_allocated,
  .get_eof = cipher_get_end,
  .get_handle = cipher_get_handle,
  .read = cipher_read,
  .write = cipher_write,
  .truncate = cipher_truncate,
  .fl_map = H5FD_FLMAP_DICHOTOMY,
};

void h5_encrypt(hid_t plist)
{
  H5_LOCKED;
  H5_CLOSED const hid_t registered = H5FDregister(&driver); /* the property list and the open file keep it */
  H5Pset_driver(plist, registered, NULL);
}

void h5_decrypt_threads(hid_t file, int threads)
{
  H5_LOCKED;
  void *cipher;
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &cipher) >= 0)
    cipher_file_use_threads(cipher, threads);
}
