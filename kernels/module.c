/* Loading a device from a module of the same build. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "kernels/module.h"

#ifndef TRM_MODULE_DIR /* $(pkglibdir), from the Makefile */
#define TRM_MODULE_DIR "/usr/local/lib/trireme"
#endif

static const struct trm_module_host module_host = {trm_error, trm_memory_name};

/* The dynamic linker's reason, shortened to what is missing. */
static int module_not_loaded(const char *name, const char *path)
{
  const char *reason = dlerror();

  return trm_error(TRM_FAILED,
                   "device.name=%s: %s cannot be loaded (are its libraries' folders in LD_LIBRARY_PATH?): %s", name,
                   path, reason ? reason : "unknown reason");
}

static int module_load(const char *name, const char *path, const struct trm_module **module)
{
  if (access(path, R_OK) != 0)
    return trm_error(TRM_FAILED, "device.name=%s: there is no module %s: configure Trireme --with-%s, or set "
                     "TRIREME_MODULES to the folder that has it", name, path, name);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays: CUDA cannot be unloaded */
  if (!library)
    return module_not_loaded(name, path);
  trm_module_entry *entry = NULL;
  *(void **)&entry = dlsym(library, TRM_MODULE_ENTRY);
  *module = entry ? entry(&module_host) : NULL;
  if (!*module || (*module)->version != TRM_MODULE_VERSION || (*module)->layout != TRM_MODULE_LAYOUT)
    return trm_error(TRM_FAILED, "device.name=%s: %s is of another version of Trireme", name, path);
  return TRM_OK;
}

int trm_module_find(const char *name, const struct trm_module **module)
{
  const char *folder = getenv("TRIREME_MODULES");
  char *path = trm_format("%s/trireme_%s.so", folder && *folder ? folder : TRM_MODULE_DIR, name);
  const int status = module_load(name, path, module);

  trm_free(path);
  return status;
}
