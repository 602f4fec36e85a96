/* Documents: writing JSON, numbers as text, reading YAML; refused and damaged texts. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/random.h"
#include "messages.h"
#include "suite.h"

static void test_json(void)
{
  struct capture capture;
  struct trm_json json;
  trm_json_open(&json, capture_begin(&capture));
  trm_json_object(&json, NULL);
  trm_json_text(&json, "text", "a\"b\\c\n\t\x01 \xc3\xa4 \xff\xc0\x80 \xed\xa0\x80!");
  trm_json_number(&json, "tenth", 0.1);
  trm_json_number(&json, "nan", NAN);
  trm_json_number(&json, "infinite", -INFINITY);
  trm_json_integer(&json, "least", INT64_MIN);
  trm_json_bool(&json, "yes", true);
  trm_json_text(&json, "null", NULL);
  trm_json_list(&json, "list");
  trm_json_number(&json, NULL, 1);
  trm_json_object(&json, NULL);
  trm_json_end(&json);
  trm_json_list(&json, NULL);
  trm_json_end(&json);
  trm_json_end(&json);
  trm_json_number(&json, "after", -2.5e-7);
  trm_json_end(&json);
  fclose(capture.stream);
  CU_ASSERT_STRING_EQUAL(capture.text,
                         "{\"text\":\"a\\\"b\\\\c\\n\\t\\u0001 \xc3\xa4 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
                         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!\",\"tenth\":0.1,\"nan\":null,\"infinite\":null,"
                         "\"least\":-9223372036854775808,\"yes\":true,\"null\":null,\"list\":[1,{},[]],"
                         "\"after\":-2.5e-07}\n");
  free(capture.text);

  /* levels beyond the limit are dropped, those within it are closed correctly */
  trm_json_open(&json, capture_begin(&capture));
  for (int i = 0; i < TRM_JSON_DEPTH + 4; i++)
    trm_json_list(&json, NULL);
  trm_json_number(&json, NULL, 1);
  for (int i = 0; i < TRM_JSON_DEPTH + 4; i++)
    trm_json_end(&json);
  fclose(capture.stream);
  CU_ASSERT_STRING_EQUAL(capture.text, "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]\n");
  free(capture.text);
}

static void test_number_text(void)
{
  char text[32];
  CU_ASSERT_STRING_EQUAL(trm_number_text(0, text), "0");
  CU_ASSERT_STRING_EQUAL(trm_number_text(0.1, text), "0.1");
  CU_ASSERT_STRING_EQUAL(trm_number_text(60000, text), "60000");
  CU_ASSERT_STRING_EQUAL(trm_number_text(-0.0, text), "-0");
  CU_ASSERT_STRING_EQUAL(trm_number_text(1e15, text), "1e+15");
  CU_ASSERT_STRING_EQUAL(trm_number_text(999999999999999, text), "999999999999999");
  CU_ASSERT_STRING_EQUAL(trm_number_text(0x1p53, text), "9007199254740992");
  CU_ASSERT_STRING_EQUAL(trm_number_text(0.1 + 0.2, text), "0.30000000000000004");
  CU_ASSERT_EQUAL(strtod(trm_number_text(DBL_MAX, text), NULL), DBL_MAX);
  CU_ASSERT_EQUAL(strtod(trm_number_text(DBL_TRUE_MIN, text), NULL), DBL_TRUE_MIN);
  int same = 0;
  for (uint64_t i = 0; i < 10000; i++) { /* random bits: doubles of all magnitudes */
    uint32_t word[4];
    trm_random_block(1, TRM_RANDOM_BENCH, 0, i, word);
    const uint64_t bits = ((uint64_t)word[0] << 32 | word[1]) & ~(UINT64_C(1) << 62);
    double value;
    memcpy(&value, &bits, sizeof value);
    same += strtod(trm_number_text(value, text), NULL) == value;
  }
  CU_ASSERT_EQUAL(same, 10000);
}

#ifdef HAVE_LIBYAML

static int parse(const char *text, struct trm_node **root)
{
  return trm_document_parse(text, strlen(text), "test.yaml", root);
}

/* Returns entry number i of a list, NULL if there is none. */
static const struct trm_node *entry(const struct trm_node *list, int i)
{
  const struct trm_node *node = list ? list->first : NULL;
  while (node && i-- > 0)
    node = node->next;
  return node;
}

/* Returns the word after another one in a list, "" if there is none. */
static const char *word_after(const struct trm_node *list, const char *word)
{
  for (const struct trm_node *node = list ? list->first : NULL; node && node->next; node = node->next)
    if (node->text && node->next->text && strcmp(node->text, word) == 0)
      return node->next->text;
  return "";
}

/* The job for Kubernetes is YAML, and its numbers fit one another. */
static void test_document_manifest(void)
{
  struct trm_node *root = NULL;
  char *path = trm_format("%s/examples/mpijob.yaml", getenv("top_srcdir") ? getenv("top_srcdir") : ".");
  CU_ASSERT_EQUAL_FATAL(trm_document_read(path, &root), TRM_OK);
  const struct trm_node *launcher = trm_node_get(root, "spec.mpiReplicaSpecs.Launcher.template.spec");
  const struct trm_node *worker = trm_node_get(root, "spec.mpiReplicaSpecs.Worker.template.spec");
  const struct trm_node *words = trm_node_get(entry(trm_node_get(launcher, "containers"), 0), "command");
  const double ranks = trm_node_number(trm_node_get(root, "spec.slotsPerWorker"), -1);
  const double workers = trm_node_number(trm_node_get(root, "spec.mpiReplicaSpecs.Worker.replicas"), -1);
  const struct trm_node *container = entry(trm_node_get(worker, "containers"), 0);
  const char *binding = word_after(words, "-bind-to");
  CU_ASSERT_STRING_EQUAL(trm_node_get(root, "kind")->text, "MPIJob");
  CU_ASSERT_EQUAL(atof(word_after(words, "-n")), workers * ranks);
  CU_ASSERT_EQUAL(atof(word_after(words, "-ppn")), ranks);
  CU_ASSERT_EQUAL_FATAL(strncmp(binding, "core:", 5), 0);
  CU_ASSERT_EQUAL(atof(binding + 5) * ranks, trm_node_number(trm_node_get(container, "resources.limits.cpu"), -1));
  const struct trm_node *threads = entry(trm_node_get(entry(trm_node_get(launcher, "containers"), 0), "env"), 0);
  CU_ASSERT_EQUAL(atof(binding + 5), trm_node_number(trm_node_get(threads, "value"), -1));
  const struct trm_node *mount = entry(trm_node_get(container, "volumeMounts"), 1);
  const struct trm_node *volume = entry(trm_node_get(worker, "volumes"), 1);
  CU_ASSERT_STRING_EQUAL(trm_node_get(mount, "mountPath")->text, "/dev/shm");
  CU_ASSERT_STRING_EQUAL(trm_node_get(mount, "name")->text, trm_node_get(volume, "name")->text);
  CU_ASSERT_STRING_EQUAL(trm_node_get(volume, "emptyDir.medium")->text, "Memory");
  trm_node_free(root);
  trm_free(path);
}

static void test_document(void)
{
  struct trm_node *root = NULL;
  CU_ASSERT_EQUAL_FATAL(parse("a: 1.5\nb:\n  c: {d: no, e: [x, 'y z', {f: 2}]}\n\n\"g h\": |\n  two\n  lines\n", &root),
                        TRM_OK);
  CU_ASSERT_EQUAL(root->kind, TRM_NODE_MAP);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "a"), -1), 1.5);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "b.c.d"), -1), -1);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "b"), -1), -1);
  CU_ASSERT_EQUAL(trm_node_number(NULL, -1), -1);
  CU_ASSERT_STRING_EQUAL(trm_node_get(root, "b.c.d")->text, "no");
  CU_ASSERT_PTR_NULL(trm_node_get(root, "b.d"));
  CU_ASSERT_PTR_NULL(trm_node_get(root, "b.c.d.e"));
  CU_ASSERT_PTR_NULL(trm_node_get(root, ""));
  const struct trm_node *list = trm_node_get(root, "b.c.e");
  CU_ASSERT_PTR_NOT_NULL_FATAL(list);
  CU_ASSERT_EQUAL(list->kind, TRM_NODE_LIST);
  CU_ASSERT_EQUAL(list->line, 3);
  CU_ASSERT_STRING_EQUAL(list->first->next->text, "y z");
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(list->first->next->next, "f"), 0), 2);
  CU_ASSERT_PTR_NULL(list->first->next->next->next);
  CU_ASSERT_STRING_EQUAL(trm_node_get(root, "g h")->text, "two\nlines\n");
  CU_ASSERT_EQUAL(trm_node_get(root, "g h")->line, 5);
  trm_node_free(root);

  CU_ASSERT_EQUAL(parse("# nothing\n", &root), TRM_OK);
  CU_ASSERT(root && root->kind == TRM_NODE_MAP && !root->first);
  trm_node_free(root);
  trm_node_free(NULL);

  /* round trip from writer to reader */
  struct capture capture;
  struct trm_json json;
  const char *wild = "a\"b\\c\n\t\x01\x7f \xc3\xa4 {[:,#";
  trm_json_open(&json, capture_begin(&capture));
  trm_json_object(&json, NULL);
  trm_json_text(&json, wild, wild);
  trm_json_number(&json, "x", 1e-300);
  trm_json_end(&json);
  fclose(capture.stream);
  CU_ASSERT_EQUAL_FATAL(parse(capture.text, &root), TRM_OK);
  CU_ASSERT_STRING_EQUAL(root->first->key, wild);
  CU_ASSERT_STRING_EQUAL(root->first->text, wild);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "x"), 0), 1e-300);
  trm_node_free(root);
  free(capture.text);
}

static void test_document_refused(void)
{
  static const struct {
    const char *text, *error;
  } wrong[] = {
      {"a: 1\n b: [2\n", "test.yaml:2:"},
      {"a: &x 1\n", "test.yaml:1:4: anchors"},
      {"a: &x {b: 1}\n", "anchors"},
      {"a: &x [1]\n", "anchors"},
      {"a: *x\n", "test.yaml:1:4: aliases"},
      {"{a: 1, [b, c]: 2}\n", "the name of an entry"},
      {"a: 1\n? {b: c}\n: 2\n", "test.yaml:2:3: the name of an entry"},
      {"a: 1\n---\nb: 2\n", "test.yaml:2:1: a second document"},
      {"a: \"x\\0y\"\n", "NUL"},
      {"a: \x01\n", "test.yaml: byte 3"},
      {"a: \xff\n", "test.yaml: byte"},
  };
  struct trm_node *root;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(parse(wrong[i].text, &root), TRM_USAGE);
    CU_ASSERT(error_has(wrong[i].error));
    CU_ASSERT_PTR_NULL(root);
  }
  enum { DEEP = 10000 };
  char *deep = trm_alloc(DEEP + 1, "a test");
  memset(deep, '[', DEEP);
  CU_ASSERT_EQUAL(parse(deep, &root), TRM_USAGE);
  CU_ASSERT(error_has("nested too deeply"));
  for (int i = 0; i + 1 < DEEP; i += 2)
    memcpy(deep + i, "- ", 2);
  CU_ASSERT_NOT_EQUAL(parse(deep, &root), TRM_OK);
  trm_free(deep);
  CU_ASSERT_EQUAL(trm_document_read("/nonexistent/x.yaml", &root), TRM_USAGE);
  CU_ASSERT(error_has("/nonexistent/x.yaml: "));
  CU_ASSERT_NOT_EQUAL(trm_document_read("/", &root), TRM_OK);
}

/* Truncated and damaged texts: an error or a tree, no undefined behavior (under sanitizers). */
static void test_document_damaged(void)
{
  static const char good[] = "a: {b: [1, \"x\\n\", {c: 'd'}], e: |\n   f\n  }\n- g: &h [*h, ? i]\n";
  uint32_t word[4];
  int read = 0;
  for (uint64_t i = 0; i < 3000; i++) {
    char text[sizeof good];
    memcpy(text, good, sizeof good);
    size_t bytes = sizeof good - 1;
    trm_random_block(3, TRM_RANDOM_BENCH, 1, i, word);
    if (i < bytes)
      bytes = i;
    else
      for (int j = 0; j < 4; j++)
        text[word[j] % bytes] = (char)(word[j] >> 16);
    struct trm_node *root = NULL;
    const int status = trm_document_parse(text, bytes, "damaged", &root);
    read += (status == TRM_OK) == (root != NULL);
    trm_node_free(root);
  }
  CU_ASSERT_EQUAL(read, 3000);
}

#else

static void test_document(void)
{
  struct trm_node *root;
  CU_ASSERT_EQUAL(trm_document_parse("a: 1\n", 5, "test.yaml", &root), TRM_USAGE);
  CU_ASSERT(error_has("libyaml"));
  CU_ASSERT_PTR_NULL(root);
}

#endif

int main(void)
{
  CU_TestInfo tests[] = {
    {"JSON", test_json},
    {"numbers as text", test_number_text},
    {"documents", test_document},
#ifdef HAVE_LIBYAML
    {"manifest", test_document_manifest},
    {"documents refused", test_document_refused},
    {"documents damaged", test_document_damaged},
#endif
    CU_TEST_INFO_NULL,
  };
  return suite_run("document", tests);
}
