/* Encrypted files: what is written is read; every changed byte, cut, swapped or older chunk and every other key is
 * refused; nothing on the disk shows the content. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "core/security.h"
#include "dataset_files.h"
#include "suite.h"

enum { CHUNK = 1024, HEADER = 232, ENTRY = 24, LENGTH = 2 * CHUNK + 300 };

static char folder[256];
static struct secret_key keys[2];

static char *name_of(const char *name)
{
  static char text[4][512];
  static int next;
  char *path = text[next++ % 4];
  snprintf(path, sizeof text[0], "%s/%s", folder, name);
  return path;
}

static bool error_has(const char *text)
{
  const bool has = strstr(trm_error_text(), text) != NULL;
  if (!has)
    printf("expected: %s\nfound: %s\n", text, trm_error_text());
  return has;
}

static size_t bytes_read(const char *path, unsigned char *to, size_t capacity)
{
  FILE *file = fopen(path, "rb");
  const size_t bytes = fread(to, 1, capacity, file);
  fclose(file);
  return bytes;
}

static void bytes_write(const char *path, const unsigned char *from, size_t bytes)
{
  FILE *file = fopen(path, "wb");
  fwrite(from, 1, bytes, file);
  fclose(file);
}

static struct cipher_file *begin(const char *path, enum cipher cipher)
{
  struct cipher_file *file;
  const struct cipher_format format = {cipher, CHUNK};
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CU_ASSERT_EQUAL_FATAL(cipher_file_create(&file, fd, path, &keys[0], &format), TRM_OK);
  return file;
}

/* Both ciphers, or the one that this build has. */
static int ciphers(enum cipher list[2])
{
  list[0] = CIPHER_CHACHA20_POLY1305;
  list[1] = CIPHER_AES256_GCM;
  return chunk_cipher_has(CIPHER_AES256_GCM) ? 2 : 1;
}

static void pattern(unsigned char *content, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++)
    content[i] = (unsigned char)(i * 7 + i / 251);
}

/* Writes a file of three chunks; returns its size. */
static size_t small_file(const char *path, enum cipher cipher, unsigned char *content)
{
  struct cipher_file *file = begin(path, cipher);
  struct stat about;
  pattern(content, LENGTH);
  CU_ASSERT_EQUAL(cipher_file_write(file, 0, LENGTH, content), TRM_OK);
  CU_ASSERT_EQUAL(cipher_file_commit(file), TRM_OK);
  cipher_file_close(file);
  stat(path, &about);
  return (size_t)about.st_size;
}

/* Opens and reads the file: true if both succeed. An error must name the file. */
static bool is_read(const char *path, const struct secret_key *key, unsigned char *to, size_t bytes)
{
  struct cipher_file *file;
  if (cipher_file_open(&file, path, key) != TRM_OK) {
    CU_ASSERT(error_has(path));
    return false;
  }
  const bool read = cipher_file_bytes(file) == bytes && cipher_file_read(file, 0, bytes, to) == TRM_OK;
  cipher_file_close(file);
  return read;
}

static bool is_same(const char *path, const struct secret_key *key, const unsigned char *content, size_t bytes)
{
  unsigned char *back = calloc(bytes + 1, 1);
  const bool same = is_read(path, key, back, bytes) && memcmp(back, content, bytes) == 0;
  free(back);
  return same;
}

/* Random writes and reads, gaps and lengths, as HDF5 makes them; an array is the model. */
static void test_content(void)
{
  enum { SPACE = 40000 };
  enum cipher list[2];
  for (int c = 0; c < ciphers(list); c++) {
    unsigned char *model = calloc(SPACE, 1), *data = malloc(SPACE);
    char *path = name_of("content");
    struct cipher_file *file = begin(path, list[c]);
    unsigned random = 5;
    uint64_t end = 0;
    for (int i = 0; i < 400; i++) {
      const size_t at = (size_t)rand_r(&random) % (SPACE / 2), bytes = (size_t)rand_r(&random) % (i % 3 ? 100 : 5000);
      for (size_t k = 0; k < bytes; k++)
        data[k] = (unsigned char)(size_t)rand_r(&random);
      if (i % 5 == 4) {
        CU_ASSERT_EQUAL(cipher_file_read(file, at, bytes, data), TRM_OK);
        CU_ASSERT_EQUAL(memcmp(data, model + at, bytes), 0);
        continue;
      }
      CU_ASSERT_EQUAL(cipher_file_write(file, at, bytes, data), TRM_OK);
      memcpy(model + at, data, bytes);
      end = at + bytes > end ? at + bytes : end;
    }
    CU_ASSERT_EQUAL(cipher_file_bytes(file), end);
    cipher_file_resize(file, SPACE); /* a gap of several chunks */
    CU_ASSERT_EQUAL(cipher_file_commit(file), TRM_OK);
    cipher_file_close(file);
    CU_ASSERT(is_same(path, &keys[0], model, SPACE));
    CU_ASSERT_EQUAL_FATAL(cipher_file_open(&file, path, &keys[0]), TRM_OK);
    for (int i = 0; i < 200; i++) {
      const size_t at = (size_t)rand_r(&random) % SPACE, bytes = (size_t)rand_r(&random) % 9000;
      const size_t inside = at + bytes > SPACE ? SPACE - at : bytes;
      CU_ASSERT_EQUAL(cipher_file_read(file, at, bytes, data), TRM_OK);
      CU_ASSERT_EQUAL(memcmp(data, model + at, inside), 0);
      for (size_t k = inside; k < bytes; k++)
        CU_ASSERT_EQUAL(data[k], 0);
    }
    cipher_file_close(file);
    free(model);
    free(data);
  }
}

static void test_every_byte(void)
{
  enum cipher list[2];
  for (int c = 0; c < ciphers(list); c++) {
    unsigned char content[LENGTH], back[LENGTH], raw[2 * LENGTH];
    char *path = name_of("bytes");
    const size_t size = small_file(path, list[c], content);
    CU_ASSERT_EQUAL(size, HEADER + 3 * (CHUNK + ENTRY));
    CU_ASSERT(is_same(path, &keys[0], content, LENGTH));
    CU_ASSERT_EQUAL_FATAL(bytes_read(path, raw, sizeof raw), size);
    const int fd = open(path, O_WRONLY);
    size_t accepted = 0;
    for (size_t at = 0; at < size; at++) {
      const unsigned char changed = raw[at] ^ (unsigned char)(1 << at % 8);
      CU_ASSERT_EQUAL(pwrite(fd, &changed, 1, (off_t)at), 1);
      accepted += is_read(path, &keys[0], back, LENGTH);
      CU_ASSERT_EQUAL(pwrite(fd, raw + at, 1, (off_t)at), 1);
    }
    CU_ASSERT_EQUAL(accepted, 0);
    for (size_t cut = 0; cut < size; cut++) {
      CU_ASSERT_EQUAL(ftruncate(fd, (off_t)(size - 1 - cut)), 0);
      accepted += is_read(path, &keys[0], back, LENGTH);
    }
    CU_ASSERT_EQUAL(accepted, 0);
    close(fd);
    for (size_t more = 1; more <= CHUNK + ENTRY; more += more < 30 ? 1 : 200) {
      bytes_write(path, raw, size + more); /* what was read of another file before */
      CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
    }
    bytes_write(path, raw, size);
    CU_ASSERT(is_same(path, &keys[0], content, LENGTH));
  }
}

static void test_chunks(void)
{
  enum cipher list[2];
  for (int c = 0; c < ciphers(list); c++) {
    unsigned char content[LENGTH], other[LENGTH], back[LENGTH], raw[2 * LENGTH], changed[2 * LENGTH];
    char *path = name_of("chunks");
    size_t size = small_file(path, list[c], other);
    CU_ASSERT_EQUAL(bytes_read(path, changed, sizeof changed), size);
    small_file(path, list[c], content);
    bytes_read(path, raw, sizeof raw);
    memcpy(raw + HEADER + CHUNK, changed + HEADER + CHUNK, CHUNK); /* the same place of another file */
    bytes_write(path, raw, size);
    CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
    CU_ASSERT(error_has("bytes 1256 to 2279 do not verify"));
    small_file(path, list[c], content);
    bytes_read(path, raw, sizeof raw);
    memcpy(changed, raw, size);
    memcpy(changed + HEADER, raw + HEADER + CHUNK, CHUNK); /* swapped, with their entries of the table */
    memcpy(changed + HEADER + CHUNK, raw + HEADER, CHUNK);
    bytes_write(path, changed, size);
    CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
    unsigned char *table = changed + HEADER + 3 * CHUNK;
    memcpy(table, raw + HEADER + 3 * CHUNK + ENTRY, ENTRY);
    memcpy(table + ENTRY, raw + HEADER + 3 * CHUNK, ENTRY);
    bytes_write(path, changed, size);
    CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
    /* a chunk that was written twice: the first version */
    struct cipher_file *file = begin(path, list[c]);
    pattern(content, LENGTH);
    cipher_file_write(file, 0, LENGTH, content);
    bytes_read(path, changed, sizeof changed);
    content[3] ^= 1;
    cipher_file_write(file, 3, 1, content + 3);
    CU_ASSERT_EQUAL(cipher_file_commit(file), TRM_OK);
    cipher_file_close(file);
    CU_ASSERT(is_same(path, &keys[0], content, LENGTH));
    bytes_read(path, raw, sizeof raw);
    CU_ASSERT_NOT_EQUAL(memcmp(raw + HEADER + 10, changed + HEADER + 10, CHUNK - 10), 0);
    memcpy(raw + HEADER, changed + HEADER, CHUNK);
    bytes_write(path, raw, size);
    CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
    /* not committed */
    file = begin(path, list[c]);
    cipher_file_write(file, 0, LENGTH, content);
    cipher_file_close(file);
    CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
    CU_ASSERT(error_has("was not completed"));
  }
}

static void test_rotation(void)
{
  unsigned char content[LENGTH], back[LENGTH], before[2 * LENGTH], after[2 * LENGTH];
  char *path = name_of("rotated");
  const size_t size = small_file(path, CIPHER_CHACHA20_POLY1305, content);
  CU_ASSERT_FALSE(is_read(path, &keys[1], back, LENGTH));
  CU_ASSERT(error_has("is encrypted with another key"));
  CU_ASSERT_NOT_EQUAL(cipher_file_rewrap(path, &keys[1], &keys[1]), TRM_OK);
  bytes_read(path, before, sizeof before);
  CU_ASSERT_EQUAL(cipher_file_rewrap(path, &keys[0], &keys[1]), TRM_OK);
  CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
  CU_ASSERT(is_same(path, &keys[1], content, LENGTH));
  CU_ASSERT_EQUAL(cipher_file_rewrap(path, &keys[0], &keys[1]), TRM_OK); /* once more: nothing to do */
  CU_ASSERT(is_same(path, &keys[1], content, LENGTH));
  bytes_read(path, after, sizeof after);
  CU_ASSERT_EQUAL(memcmp(before + HEADER, after + HEADER, size - HEADER), 0);
  memcpy(after, before, 24 + 88); /* interrupted: both keys are there */
  bytes_write(path, after, size);
  for (int k = 0; k < 2; k++) {
    CU_ASSERT_FALSE(is_read(path, &keys[k], back, LENGTH));
    CU_ASSERT(error_has("rotate was interrupted"));
  }
  CU_ASSERT_EQUAL(cipher_file_rewrap(path, &keys[0], &keys[1]), TRM_OK);
  CU_ASSERT_FALSE(is_read(path, &keys[0], back, LENGTH));
  CU_ASSERT(is_same(path, &keys[1], content, LENGTH));
  CU_ASSERT_EQUAL(cipher_file_rewrap(path, &keys[1], &keys[0]), TRM_OK);
  CU_ASSERT(is_same(path, &keys[0], content, LENGTH));
}

static void test_sources(void)
{
  struct secret_key key;
  char *path = name_of("source"), source[600], digits[65];
  CU_ASSERT_EQUAL(secret_key_make(path, KEY_ENCRYPTION), TRM_OK);
  CU_ASSERT(secret_key_make(path, KEY_ENCRYPTION) == TRM_FAILED && error_has("File exists"));
  struct secret_key made;
  CU_ASSERT_EQUAL(secret_key_read(&made, KEY_ENCRYPTION, path), TRM_OK);
  const char *const formats[] = {"file:%s", "command:cat %s"};
  for (int i = 0; i < 2; i++) {
    snprintf(source, sizeof source, formats[i], path);
    memset(&key, 0, sizeof key);
    CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, source) == TRM_OK && memcmp(&key, &made, 32) == 0);
  }
  snprintf(source, sizeof source, "fd:%d", open(path, O_RDONLY));
  memset(&key, 0, sizeof key);
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, source) == TRM_OK && memcmp(&key, &made, 32) == 0);
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, "fd:99") == TRM_USAGE && error_has("no open file descriptor"));
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, "command:exit 3") == TRM_FAILED && error_has("the command failed"));
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, "command:echo no") == TRM_USAGE && error_has("does not hold a key"));
  CU_ASSERT(secret_key_read(&key, KEY_SIGNING, path) == TRM_USAGE && error_has("does not hold a key to sign with"));
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, "/nowhere") == TRM_USAGE && error_has("No such file"));
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, folder) == TRM_USAGE && error_has("not in a regular file"));
  memset(digits, 'a', 64);
  digits[64] = '\0';
  CU_ASSERT(secret_key_read(&key, KEY_ENCRYPTION, digits) == TRM_USAGE && error_has("never an option"));
  CU_ASSERT_PTR_NULL(strstr(trm_error_text(), "aaaa"));
  for (mode_t mode = 0; mode < 0100; mode = mode ? mode << 1 : 1) {
    chmod(path, 0600 | mode);
    CU_ASSERT_EQUAL(secret_key_read(&key, KEY_ENCRYPTION, path), mode ? TRM_USAGE : TRM_OK);
    CU_ASSERT(mode == 0 || error_has("others can reach the key"));
  }
}

/* True if one of the files that are open, or in the folder, has the bytes. */
static bool disk_has(const void *bytes, size_t count)
{
  char path[600];
  bool found = false;
  const char *const places[] = {folder, "/proc/self/fd"};
  unsigned char *raw = malloc(1 << 22);
  for (int p = 0; p < 2; p++) {
    DIR *directory = opendir(places[p]);
    for (struct dirent *e; (e = readdir(directory));) {
      struct stat about;
      snprintf(path, sizeof path, "%s/%s", places[p], e->d_name);
      if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        continue;
      const int fd = open(path, O_RDONLY);
      const ssize_t got = fd < 0 ? 0 : pread(fd, raw, 1 << 22, 0);
      found = found || (got > 0 && memmem(raw, (size_t)got, bytes, count));
      close(fd);
    }
    closedir(directory);
  }
  free(raw);
  return found;
}

/* No file of the writer, nor the data set, shows a row; without a key they do. */
static void test_plain_text(void)
{
  char *path = name_of("set.h5"), *key = name_of("set.key");
  CU_ASSERT_EQUAL(secret_key_make(key, KEY_ENCRYPTION), TRM_OK);
  for (int encrypted = 0; encrypted < 2; encrypted++)
    for (int compress = 0; compress < 2; compress++) {
      unsigned char row[40];
      struct trm_data_spec spec;
      struct trm_data_writer *writer;
      for (size_t j = 0; j < 40; j++)
        row[j] = made_byte(7, j);
      if (encrypted)
        CU_ASSERT_EQUAL(security_set_key(key), TRM_OK);
      made_spec(MADE_BYTES, 40, compress, &spec);
      CU_ASSERT_EQUAL_FATAL(trm_data_writer_open(&writer, path, &spec), TRM_OK);
      CU_ASSERT_EQUAL(trm_data_writer_split(writer, "train"), TRM_OK);
      CU_ASSERT_EQUAL(made_append(writer, MADE_BYTES, 40, 0, 20000), TRM_OK);
      if (!compress)
        CU_ASSERT_EQUAL(disk_has(row, sizeof row), !encrypted);
      CU_ASSERT_EQUAL(trm_data_writer_finish(writer, 0), TRM_OK);
      CU_ASSERT_EQUAL(disk_has("made for a test", 15), !encrypted);
      if (!compress)
        CU_ASSERT_EQUAL(disk_has(row, sizeof row), !encrypted);
      bool has;
      CU_ASSERT_EQUAL(trm_dataset_hdf5.has_split(path, TRM_SPLIT_TRAIN, &has), TRM_OK);
      security_clear();
      CU_ASSERT_EQUAL(trm_dataset_hdf5.has_split(path, TRM_SPLIT_TRAIN, &has), encrypted ? TRM_USAGE : TRM_OK);
      CU_ASSERT(!encrypted || error_has("is encrypted; security.key=file:PATH names its key"));
      if (!encrypted) {
        CU_ASSERT_EQUAL(security_set_key(key), TRM_OK);
        CU_ASSERT_EQUAL(trm_dataset_hdf5.has_split(path, TRM_SPLIT_TRAIN, &has), TRM_USAGE);
        CU_ASSERT(error_has("is not encrypted"));
        security_clear();
      }
    }
}

/* Several threads read what one reads, and refuse what it refuses. */
static void test_threads(void)
{
  enum { CHUNKS = 40, CHANGED = 23, BYTES = CHUNKS * CHUNK - 5 };
  unsigned char *content = malloc(BYTES), *back = malloc(BYTES);
  char *path = name_of("threads"), place[64];
  enum cipher list[2];
  pattern(content, BYTES);
  snprintf(place, sizeof place, "bytes %d to %d", HEADER + CHANGED * CHUNK, HEADER + (CHANGED + 1) * CHUNK - 1);
  for (int c = 0; c < ciphers(list); c++) {
    struct cipher_file *file = begin(path, list[c]);
    CU_ASSERT_EQUAL(cipher_file_write(file, 0, BYTES, content), TRM_OK);
    CU_ASSERT_EQUAL(cipher_file_commit(file), TRM_OK);
    cipher_file_close(file);
    CU_ASSERT_EQUAL_FATAL(cipher_file_open(&file, path, &keys[0]), TRM_OK);
    for (int threads = 1; threads <= 5; threads++)
      for (int first = 0; first < 3 * CHUNK; first += 700) {
        cipher_file_use_threads(file, threads);
        memset(back, 0, BYTES);
        CU_ASSERT_EQUAL(cipher_file_read(file, (uint64_t)first, (size_t)(BYTES - first), back), TRM_OK);
        CU_ASSERT_EQUAL(memcmp(back, content + first, (size_t)(BYTES - first)), 0);
      }
    cipher_file_close(file);
    FILE *stream = fopen(path, "r+b");
    fseek(stream, HEADER + CHANGED * CHUNK + 7, SEEK_SET);
    const int old = fgetc(stream);
    fseek(stream, -1, SEEK_CUR);
    fputc(old ^ 1, stream);
    fclose(stream);
    CU_ASSERT_EQUAL_FATAL(cipher_file_open(&file, path, &keys[0]), TRM_OK);
    cipher_file_use_threads(file, 3);
    trm_error(TRM_FAILED, "none");
    CU_ASSERT_EQUAL(cipher_file_read(file, 0, BYTES, back), TRM_FAILED);
    CU_ASSERT(error_has(path) && error_has(place));
    CU_ASSERT_EQUAL(cipher_file_read(file, 0, CHANGED * CHUNK, back), TRM_OK);
    cipher_file_close(file);
  }
  free(content);
  free(back);
}

int main(void)
{
#ifndef HAVE_SODIUM
  return 77;
#endif
  CU_TestInfo tests[] = {
    {"content", test_content},
    {"every byte and cut", test_every_byte},
    {"chunks of other places, files, times", test_chunks},
    {"threads", test_threads},
    {"rotation", test_rotation},
    {"sources of keys", test_sources},
    {"no plain text on the disk", test_plain_text},
    CU_TEST_INFO_NULL,
  };
  made_folder(folder);
  for (int i = 0; i < 2; i++) {
    char *path = name_of(i ? "second.key" : "first.key");
    if (secret_key_make(path, KEY_ENCRYPTION) != TRM_OK || secret_key_read(&keys[i], KEY_ENCRYPTION, path) != TRM_OK)
      return 99;
  }
  const int failed = suite_run("cipher", tests);
  made_folder_remove(folder);
  return failed;
}
