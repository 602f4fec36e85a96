/* oneDNN's versions 2 and 3 have different types for descriptions of arrays. Private to the files that call oneDNN. */
#pragma once

#include <dnnl.h>

#include "core/status.h"

/* view: the type that both versions accept; VIEW(d): of a description. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_view;
typedef dnnl_memory_desc_t onednn_description;
#define ONEDNN_VIEW(d) (d)

static inline dnnl_status_t onednn_describe_strides(onednn_description *to, int dims, const dnnl_dims_t size,
                                                    dnnl_data_type_t type, const dnnl_dims_t step)
{
  return dnnl_memory_desc_create_with_strides(to, dims, size, type, step);
}

static inline dnnl_status_t onednn_describe_any(onednn_description *to, int dims, const dnnl_dims_t size,
                                                dnnl_data_type_t type)
{
  return dnnl_memory_desc_create_with_tag(to, dims, size, type, dnnl_format_tag_any);
}

static inline void onednn_free_description(onednn_description *d)
{
  dnnl_memory_desc_destroy(*d);
}
#else
typedef const dnnl_memory_desc_t *onednn_view;
typedef dnnl_memory_desc_t onednn_description;
#define ONEDNN_VIEW(d) (&(d))

static inline dnnl_status_t onednn_describe_strides(onednn_description *to, int dims, const dnnl_dims_t size,
                                                    dnnl_data_type_t type, const dnnl_dims_t step)
{
  return dnnl_memory_desc_init_by_strides(to, dims, size, type, step);
}

static inline dnnl_status_t onednn_describe_any(onednn_description *to, int dims, const dnnl_dims_t size,
                                                dnnl_data_type_t type)
{
  return dnnl_memory_desc_init_by_tag(to, dims, size, type, dnnl_format_tag_any);
}

static inline void onednn_free_description(onednn_description *d)
{
  (void)d; /* nothing to release */
}
#endif
