/* SHA-256. */
#include <string.h>

#include "core/memory.h"
#include "core/sha256.h"
#include "suite.h"

/* With the processor's instructions where it has them, and without. */
static void begin(struct trm_sha256 *hash, bool plain)
{
  trm_sha256_begin(hash);
  hash->is_native = hash->is_native && !plain;
}

static void vectors(bool plain)
{
  char hex[65], again[65];
  struct trm_sha256 hash;
  begin(&hash, plain);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  begin(&hash, plain);
  trm_sha256_add(&hash, "abc", 3);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  begin(&hash, plain);
  trm_sha256_add(&hash, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");

  char *million = trm_alloc(1000000, "a test");
  memset(million, 'a', 1000000);
  begin(&hash, plain);
  trm_sha256_add(&hash, million, 1000000);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  /* in parts of all sizes around a block */
  begin(&hash, plain);
  size_t done = 0;
  for (size_t piece = 0; done < 1000000; piece = (piece + 1) % 131) {
    const size_t part = piece < 1000000 - done ? piece : 1000000 - done;
    trm_sha256_add(&hash, million + done, part);
    done += part;
  }
  trm_sha256_end(&hash, again);
  CU_ASSERT_STRING_EQUAL(again, hex);
  trm_free(million);
}

static void test_sha256(void)
{
  vectors(false);
  vectors(true);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"published vectors", test_sha256},
    CU_TEST_INFO_NULL,
  };
  return suite_run("sha256", tests);
}
