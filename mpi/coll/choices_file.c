/* Files of choices, as JSON:
 *
 *   {"collectives": [{"collective": "allreduce", "domain": "node", "ranks": 2, "bytes": 4096, "algorithm": "ring",
 *                     "seconds": 2.2e-6}, ...]}
 *
 * seconds are for readers alone, and may be absent. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/choices.h"

#define MAX_RANKS 1e6
#define MAX_BYTES 0x1p50
#define HINT "trireme bench allreduce --tune writes such files"

static const char *const domains[] = {"node", "nodes", NULL};

const char *coll_name(const struct coll_ops *ops)
{
  return ops ? ops->name : "library";
}

int coll_choices_write(const struct coll_choices *choices, const char *path)
{
  FILE *stream = fopen(path, "w");
  if (!stream)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  fputs("{\"collectives\": [\n", stream); /* a line for each choice, which messages about the file name */
  for (size_t i = 0; i < choices->count; i++) {
    const struct coll_choice *choice = &choices->choice[i];
    struct trm_json json;
    fputs(i > 0 ? "," : " ", stream);
    trm_json_open(&json, stream);
    trm_json_object(&json, NULL);
    trm_json_text(&json, "collective", coll_kind_names[choice->kind]);
    trm_json_text(&json, "domain", domains[choice->across_nodes]);
    trm_json_integer(&json, "ranks", choice->ranks);
    trm_json_integer(&json, "bytes", (int64_t)choice->bytes);
    trm_json_text(&json, "algorithm", coll_name(choice->ops));
    trm_json_number(&json, "seconds", choice->seconds);
    trm_json_end(&json);
  }
  fputs("]}\n", stream);
  const bool written = !ferror(stream);
  if (fclose(stream) != 0 || !written)
    return trm_error(TRM_FAILED, "%s: cannot be written", path);
  return TRM_OK;
}

/* -- reading */

/* A list of names that ends with NULL, as "a, b, c". */
static const char *choices_file_list(const char *const *names, char text[256])
{
  size_t used = 0;
  text[0] = '\0';
  for (; *names && used < 255; names++)
    used += (size_t)snprintf(text + used, 256 - used, "%s%s", used > 0 ? ", " : "", *names);
  return text;
}

/* Sets *index to the position of the key's text in the list. */
static int choices_file_read_name(const struct trm_node *map, const char *key, const char *const *names,
                                  const char *path, int *index)
{
  char list[256];
  const struct trm_node *node = trm_node_get(map, key);
  if (!node || !node->text)
    return trm_error(TRM_USAGE, "%s:%zu: no \"%s\" (" HINT ")", path, map->line, key);
  for (*index = 0; names[*index]; ++*index)
    if (strcmp(names[*index], node->text) == 0)
      return TRM_OK;
  return trm_error(TRM_USAGE, "%s:%zu: %s: no \"%.40s\"; there are: %s", path, node->line, key, node->text,
                   choices_file_list(names, list));
}

/* A whole number from low to high. */
static int choices_file_read_number(const struct trm_node *map, const char *key, double low, double high,
                                    const char *path, double *value)
{
  const struct trm_node *node = trm_node_get(map, key);
  *value = trm_node_number(node, NAN);
  if (!(*value >= low && *value <= high && *value == floor(*value)))
    return trm_error(TRM_USAGE, "%s:%zu: %s must be a whole number from %.0f to %.0f (" HINT ")", path,
                     node ? node->line : map->line, key, low, high);
  return TRM_OK;
}

/* The rows of a kind, and the library's own. */
static int choices_file_read_algorithm(const struct trm_node *map, enum coll_kind kind, const char *path,
                                       const struct coll_ops **ops)
{
  enum { MAX_ROWS = 31 };
  const char *names[MAX_ROWS + 1] = {coll_name(NULL)};
  int count = 1, index;
  for (const struct coll_ops *row = coll_table; row->name && count < MAX_ROWS; row++)
    if (row->kind == kind)
      names[count++] = row->name;
  TRM_CHECK(choices_file_read_name(map, "algorithm", names, path, &index));
  *ops = coll_find(kind, names[index]);
  return TRM_OK;
}

static int choices_file_read_choice(const struct trm_node *map, const char *path, struct coll_choice *choice)
{
  static const char *const keys[] = {"collective", "domain", "ranks", "bytes", "algorithm", "seconds", NULL};
  int kind, domain;
  double ranks, bytes;
  if (map->kind != TRM_NODE_MAP)
    return trm_error(TRM_USAGE, "%s:%zu: a choice must be an object (" HINT ")", path, map->line);
  for (const struct trm_node *node = map->first; node; node = node->next) {
    int known = 0;
    while (keys[known] && strcmp(keys[known], node->key) != 0)
      known++;
    if (!keys[known])
      return trm_error(TRM_USAGE, "%s:%zu: unknown entry \"%.40s\" (" HINT ")", path, node->line, node->key);
  }
  TRM_CHECK(choices_file_read_name(map, "collective", coll_kind_names, path, &kind));
  TRM_CHECK(choices_file_read_name(map, "domain", domains, path, &domain));
  TRM_CHECK(choices_file_read_number(map, "ranks", 1, MAX_RANKS, path, &ranks));
  TRM_CHECK(choices_file_read_number(map, "bytes", 0, MAX_BYTES, path, &bytes));
  *choice = (struct coll_choice){.kind = (enum coll_kind)kind, .across_nodes = domain == 1, .ranks = (int)ranks,
                                 .bytes = (size_t)bytes, .seconds = trm_node_number(trm_node_get(map, "seconds"), NAN)};
  TRM_CHECK(choices_file_read_algorithm(map, choice->kind, path, &choice->ops));
  if (kind == COLL_TREE_SUM && !choice->ops)
    return trm_error(TRM_USAGE, "%s:%zu: algorithm: the library has no tree sum", path, map->line);
  return TRM_OK;
}

static int choices_file_read_document(struct coll_choices *choices, const struct trm_node *root, const char *path)
{
  const struct trm_node *list = trm_node_get(root, "collectives");
  if (!list || list->kind != TRM_NODE_LIST || !list->first)
    return trm_error(TRM_USAGE, "%s:%zu: no list \"collectives\" (" HINT ")", path, root->line);
  for (const struct trm_node *node = list->first; node; node = node->next) {
    struct coll_choice choice;
    TRM_CHECK(choices_file_read_choice(node, path, &choice));
    coll_choices_add(choices, &choice);
  }
  return TRM_OK;
}

int coll_choices_read(struct coll_choices *choices, const char *path)
{
  struct trm_node *root;
  *choices = (struct coll_choices){0};
  TRM_CHECK(trm_document_read(path, &root));
  const int status = choices_file_read_document(choices, root, path);
  trm_node_free(root);
  if (status != TRM_OK)
    coll_choices_free(choices);
  return status;
}

/* -- for all ranks */

enum { FIELDS = 5 };

static void choices_file_pack(const struct coll_choice *choice, int64_t field[FIELDS])
{
  field[0] = choice->kind;
  field[1] = choice->across_nodes;
  field[2] = choice->ranks;
  field[3] = (int64_t)choice->bytes;
  field[4] = choice->ops ? choice->ops - coll_table : -1;
}

static struct coll_choice choices_file_unpack(const int64_t field[FIELDS])
{
  return (struct coll_choice){(enum coll_kind)field[0], field[1] != 0, (int)field[2], (size_t)field[3],
                              field[4] < 0 ? NULL : &coll_table[field[4]], NAN};
}

int coll_choices_read_together(struct coll_choices *choices, const char *path, struct trm_comm *comm)
{
  *choices = (struct coll_choices){0};
  TRM_CHECK(trm_agree(comm, comm->rank == 0 ? coll_choices_read(choices, path) : TRM_OK));
  int64_t count = (int64_t)choices->count;
  comm->ops->broadcast(comm, &count, 1, TRM_INT64, 0);
  int64_t *fields = trm_alloc((size_t)count * FIELDS * sizeof *fields, "choices of collectives");
  for (size_t i = 0; i < choices->count; i++)
    choices_file_pack(&choices->choice[i], &fields[FIELDS * i]);
  comm->ops->broadcast(comm, fields, (size_t)count * FIELDS, TRM_INT64, 0);
  for (size_t i = choices->count; i < (size_t)count; i++) {
    const struct coll_choice choice = choices_file_unpack(&fields[FIELDS * i]);
    coll_choices_add(choices, &choice);
  }
  trm_free(fields);
  return TRM_OK;
}
