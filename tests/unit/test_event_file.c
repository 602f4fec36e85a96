/* TensorBoard's event files: CRC-32C against RFC 3720, frames and messages against what TensorBoard's own writer made
 * (tests/reference/make_events.py). */
#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "messages.h"
#include "suite.h"
#include "core/event_file.h"

static const char version_frame[] =
  "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c";
static const char scalar_frame[] =
  "2100000000000000017becf6090000100084d7d74110ac022a130a110a0a747261696e2f6c6f7373150000c03e26f71944";
static const char histogram_frame[] =
  "9700000000000000e47640f309000000000000004010072a89010a86010a117374616c656e6573732f757064617465732a7109000000000000f0"
  "3f1100000000000008401900000000000018402100000000000026402900000000000037403220000000000000e03f000000000000f83f000000"
  "00000004400000000000000c403a20000000000000000000000000000000400000000000000840000000000000f03fd3dea8f7";

static const char values_frame[] =
  "60000000000000002821c6da09000000000000004010092a530a510a0c776569676874732f626961732a4109000000000000d03f110000000000"
  "00d03f19000000000000084021000000000000e83f29000000000000c83f3208000000000000d03f3a080000000000000840b989e973";

static void write_hex(const unsigned char *data, size_t bytes, char *hex)
{
  for (size_t i = 0; i < bytes; i++)
    sprintf(hex + 2 * i, "%02x", data[i]);
}

static void test_crc(void)
{
  unsigned char bytes[32];
  memset(bytes, 0, sizeof bytes);
  CU_ASSERT_EQUAL(trm_crc32c(bytes, 32), 0x8a9136aau);
  memset(bytes, 0xff, sizeof bytes);
  CU_ASSERT_EQUAL(trm_crc32c(bytes, 32), 0x62a8ab43u);
  for (int i = 0; i < 32; i++)
    bytes[i] = (unsigned char)i;
  CU_ASSERT_EQUAL(trm_crc32c(bytes, 32), 0x46dd794eu);
  for (int i = 0; i < 32; i++)
    bytes[i] = (unsigned char)(31 - i);
  CU_ASSERT_EQUAL(trm_crc32c(bytes, 32), 0x113fdb5cu);
}

static void test_frame(void)
{
  static const unsigned char event[] = {0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x1a, 0x0d, 'b', 'r', 'a', 'i', 'n', '.',
                                        'E', 'v', 'e', 'n', 't', ':', '2'};
  struct capture capture;
  char hex[128];
  CU_ASSERT_EQUAL(trm_event_frame_write(capture_begin(&capture), event, sizeof event), 0);
  fclose(capture.stream);
  write_hex((unsigned char *)capture.text, capture.bytes, hex);
  CU_ASSERT_STRING_EQUAL(hex, version_frame);
  free(capture.text);
}

/* The file's name is removed with it. */
static size_t read_file(const char *path, unsigned char *data, size_t capacity)
{
  FILE *in = fopen(path, "rb");
  const size_t n = in ? fread(data, 1, capacity, in) : 0;
  if (in)
    fclose(in);
  unlink(path);
  return n;
}

/* A line without numbers but the loss, and histograms. The first frame, which has the time, is compared without it. */
static void test_messages(void)
{
  char folder[] = "/tmp/trm_events_XXXXXX", hex[1024] = "";
  unsigned char data[512];
  const float same[] = {0.25f, NAN, 0.25f, -INFINITY, 0.25f}, invalid[] = {NAN, INFINITY};
  CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  struct trm_event_file file;
  if (trm_event_file_open(&file, folder, -1) != TRM_OK) {
    CU_ASSERT(error_has("no protobuf-c"));
    puts("  SKIPPED: messages (this build has no protobuf-c)");
    rmdir(folder);
    return;
  }
  static const char text[] = "{\"step\":300,\"samples\":9,\"wall_s\":1,\"train_s\":0.5,\"loss\":0.375,\"lr\":null}\n";
  static const uint64_t count[6] = {0, 2, 3, 1, 0, 0}, none[3] = {0};
  struct trm_node *line;
  CU_ASSERT_EQUAL_FATAL(trm_document_parse(text, sizeof text - 1, "a test", &line), TRM_OK);
  CU_ASSERT_EQUAL(trm_event_file_add_line(&file, line, 1600000000.25), TRM_OK);
  trm_node_free(line);
  CU_ASSERT_EQUAL(trm_event_file_add_histogram(&file, "staleness/updates", 7, 2, count, 6), TRM_OK);
  CU_ASSERT_EQUAL(trm_event_file_add_histogram(&file, "staleness/updates", 8, 2, none, 3), TRM_OK);
  CU_ASSERT_EQUAL(trm_event_file_add_values(&file, "weights/bias", 9, 2, same, 5), TRM_OK);
  CU_ASSERT_EQUAL(trm_event_file_add_values(&file, "weights/bias", 10, 2, invalid, 2), TRM_OK);
  char *path = trm_strdup(file.path);
  CU_ASSERT_EQUAL(trm_event_file_close(&file), TRM_OK);
  const size_t n = read_file(path, data, sizeof data), first = sizeof version_frame / 2;
  write_hex(data, n, hex);
  CU_ASSERT_NSTRING_EQUAL(hex, version_frame, 24 + 2);
  CU_ASSERT_NSTRING_EQUAL(hex + 2 * first, scalar_frame, sizeof scalar_frame - 1);
  const char *const histograms = hex + 2 * first + sizeof scalar_frame - 1;
  CU_ASSERT_NSTRING_EQUAL(histograms, histogram_frame, sizeof histogram_frame - 1);
  CU_ASSERT_STRING_EQUAL(histograms + sizeof histogram_frame - 1, values_frame);
  trm_free(path);
  CU_ASSERT_EQUAL(rmdir(folder), 0);
}

static void test_full_disk(void)
{
  FILE *full = fopen("/dev/full", "w");
  CU_ASSERT_PTR_NOT_NULL_FATAL(full);
  setvbuf(full, NULL, _IONBF, 0);
  CU_ASSERT_EQUAL(trm_event_frame_write(full, "abc", 3), -1);
  fclose(full);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"CRC-32C", test_crc},
    {"frames", test_frame},
    {"messages", test_messages},
    {"a full disk", test_full_disk},
    CU_TEST_INFO_NULL,
  };
  return suite_run("event_file", tests);
}
