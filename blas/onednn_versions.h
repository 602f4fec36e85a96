/* oneDNN's versions 2 and 3 have different types for descriptions of arrays. Private to the files that call oneDNN. */
#pragma once

#include <dnnl.h>

#include "core/status.h"

/* view: the type that both versions accept; VIEW(d): of a description. */
/* describe_blocked: float32 images (B, C / 16, H, W, 16). append_function: f(x) with its parameter alpha. */
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

static inline dnnl_status_t onednn_describe_blocked(onednn_description *to, const dnnl_dims_t size)
{
  return dnnl_memory_desc_create_with_tag(to, 4, size, dnnl_f32, dnnl_nChw16c);
}

static inline dnnl_status_t onednn_append_sum(dnnl_post_ops_t post_ops, float factor)
{
  return dnnl_post_ops_append_sum(post_ops, factor, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t onednn_append_function(dnnl_post_ops_t post_ops, dnnl_alg_kind_t kind, float alpha)
{
  return dnnl_post_ops_append_eltwise(post_ops, kind, alpha, 0);
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

static inline dnnl_status_t onednn_describe_blocked(onednn_description *to, const dnnl_dims_t size)
{
  return dnnl_memory_desc_init_by_tag(to, 4, size, dnnl_f32, dnnl_nChw16c);
}

static inline dnnl_status_t onednn_append_sum(dnnl_post_ops_t post_ops, float factor)
{
  return dnnl_post_ops_append_sum(post_ops, factor);
}

static inline dnnl_status_t onednn_append_function(dnnl_post_ops_t post_ops, dnnl_alg_kind_t kind, float alpha)
{
  return dnnl_post_ops_append_eltwise(post_ops, 1, kind, alpha, 0);
}

static inline void onednn_free_description(onednn_description *d)
{
  (void)d; /* nothing to release */
}
#endif
