/* trireme key */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "core/atomic_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/security.h"
#include "core/signature.h"
#include "core/status.h"
#include "mpi/real.h"

static const char usage[] =
  "usage: trireme key make FILE [--sign]\n"
  "       trireme key encrypt|decrypt FILE --out=FILE --security.key=KEY\n"
  "       trireme key rotate FILE... --security.key=KEY --new=KEY\n"
  "       trireme key sign FILE... --run.sign=KEY\n"
  "       trireme key verify FILE... --run.verify_with=KEY\n"
  "\n"
  "Keys of encrypted and signed files. KEY is file:PATH, fd:N (an open file descriptor) or command:COMMAND.\n"
  "\n"
  "  --sign              make a key to sign with, and FILE.pub to verify with\n"
  "  --out=FILE          the file to write; it is complete or absent\n"
  "  --security.key=KEY  the key that the files are encrypted under\n"
  "  --new=KEY           the key that they shall be encrypted under\n"
  "\n"
  "sign writes FILE.sig; sign and verify take --security.key, too.\n"
  "\n";

struct key_flags {
  const char *key, *new_key, *out, *sign_key, *verify_key;
  bool sign;
};
#define AT(field) offsetof(struct key_flags, field)
#define KEY_FLAG {"security.key", TRM_OPTION_TEXT, AT(key), NULL, NO_RANGE}

/* Sets the key of the process, which must be named. */
static int cmd_key_set(const struct call *call)
{
  const struct key_flags *f = call->values;
  if (!f->key)
    return trm_error(TRM_USAGE, "%s: --security.key: no key named", call->command->name);
  TRM_CHECK(trm_launch_require_single(call->command->name));
  return security_set_key(f->key);
}

static int cmd_key_make(const struct call *call)
{
  const struct key_flags *f = call->values;
  const char *path = call->args[0];
  TRM_CHECK(secret_key_make(path, f->sign ? KEY_SIGNING : KEY_ENCRYPTION));
  trm_info(f->sign ? "%s signs, %s.pub verifies" : "%s: keep a copy of it: what it encrypts cannot be read without",
           path, path);
  return TRM_OK;
}

/* Copies to the end of `from`. */
static int cmd_key_copy(FILE *from, const char *path, FILE *to)
{
  enum { BYTES = 1 << 20 };
  char *buffer = trm_alloc(BYTES, "a part of the file");
  size_t bytes = BYTES;
  bool written = true;
  while (written && bytes == BYTES) {
    bytes = fread(buffer, 1, BYTES, from);
    written = fwrite(buffer, 1, bytes, to) == bytes;
  }
  trm_free(buffer);
  if (!ferror(from))
    return written ? TRM_OK : TRM_FAILED; /* the reason is told when `to` is closed */
  return errno == EBADMSG ? TRM_FAILED : trm_error(TRM_FAILED, "%s: cannot be read: %s", path, strerror(errno));
}

static int cmd_key_convert(const struct call *call, bool encrypt)
{
  const struct key_flags *f = call->values;
  const char *path = call->args[0];
  struct atomic_file out;
  FILE *in;
  if (!f->out)
    return trm_error(TRM_USAGE, "%s: --out: no file named", call->command->name);
  TRM_CHECK(cmd_key_set(call));
  if (!encrypt)
    TRM_CHECK(security_open(path, &in));
  else if (cipher_file_detect(path))
    return trm_error(TRM_USAGE, "%s: is encrypted already", path);
  else if (!(in = fopen(path, "rbe")))
    return trm_error(TRM_USAGE, "%s: %s", path, strerror(errno));
  int status = encrypt ? atomic_file_open_secret(&out, f->out) : atomic_file_open(&out, f->out);
  if (status == TRM_OK) {
    status = cmd_key_copy(in, path, out.stream);
    char *reason = trm_strdup(trm_error_text());
    const bool read = !ferror(in);
    if (atomic_file_close(&out, status == TRM_OK) != TRM_OK)
      status = read ? TRM_FAILED : trm_error(TRM_FAILED, "%s", reason);
    trm_free(reason);
  }
  fclose(in);
  return status;
}

static int cmd_key_encrypt(const struct call *call)
{
  return cmd_key_convert(call, true);
}

static int cmd_key_decrypt(const struct call *call)
{
  return cmd_key_convert(call, false);
}

static int cmd_key_rotate(const struct call *call)
{
  const struct key_flags *f = call->values;
  struct secret_key new_key;
  if (!f->new_key)
    return trm_error(TRM_USAGE, "%s: --new: no key named", call->command->name);
  TRM_CHECK(cmd_key_set(call));
  TRM_CHECK(secret_key_read(&new_key, KEY_ENCRYPTION, f->new_key));
  int status = TRM_OK;
  for (int i = 0; i < call->nargs && status == TRM_OK; i++)
    status = cipher_file_rewrap(call->args[i], security_key(), &new_key);
  secret_key_clear(&new_key);
  return status;
}

/* Signs or verifies each file. */
static int cmd_key_for_each(const struct call *call, const char *flag, const char *source)
{
  const struct key_flags *f = call->values;
  if (!source)
    return trm_error(TRM_USAGE, "%s: --%s: no key named", call->command->name, flag);
  TRM_CHECK(security_set_key(f->key));
  TRM_CHECK(signature_set_signing_key(f->sign_key));
  TRM_CHECK(signature_set_verification_key(f->verify_key));
  for (int i = 0; i < call->nargs; i++)
    TRM_CHECK(f->sign_key ? signature_write(call->args[i], call->args[i]) : signature_verify(call->args[i]));
  return TRM_OK;
}

static int cmd_key_sign(const struct call *call)
{
  return cmd_key_for_each(call, "run.sign", ((const struct key_flags *)call->values)->sign_key);
}

static int cmd_key_verify(const struct call *call)
{
  return cmd_key_for_each(call, "run.verify_with", ((const struct key_flags *)call->values)->verify_key);
}

static const struct trm_option make_flags[] = {{"sign", TRM_OPTION_BOOL, AT(sign), NULL, NO_RANGE}, END_OF_FLAGS};
static const struct trm_option convert_flags[] = {KEY_FLAG, {"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE},
                                                  END_OF_FLAGS};
static const struct trm_option rotate_flags[] = {KEY_FLAG, {"new", TRM_OPTION_TEXT, AT(new_key), NULL, NO_RANGE},
                                                 END_OF_FLAGS};
static const struct trm_option sign_flags[] = {
  KEY_FLAG, {"run.sign", TRM_OPTION_TEXT, AT(sign_key), NULL, NO_RANGE}, END_OF_FLAGS};
static const struct trm_option verify_flags[] = {
  KEY_FLAG, {"run.verify_with", TRM_OPTION_TEXT, AT(verify_key), NULL, NO_RANGE}, END_OF_FLAGS};
#define KEY_ACTION .usage = usage, .bytes = sizeof(struct key_flags), .missing = "no file named"
static const struct command
  key_make = {.name = "key make", .help = "make a key", .flags = make_flags, .max_args = 1, .run = cmd_key_make,
              KEY_ACTION},
  key_encrypt = {.name = "key encrypt", .help = "write a file's content encrypted", .flags = convert_flags,
                 .max_args = 1, .run = cmd_key_encrypt, KEY_ACTION},
  key_decrypt = {.name = "key decrypt", .help = "write an encrypted file's content", .flags = convert_flags,
                 .max_args = 1, .run = cmd_key_decrypt, KEY_ACTION},
  key_rotate = {.name = "key rotate", .help = "put encrypted files under another key; the contents are not touched",
                .flags = rotate_flags, .max_args = ANY_ARGS, .run = cmd_key_rotate, KEY_ACTION},
  key_sign = {.name = "key sign", .help = "write the signature of a file beside it", .flags = sign_flags,
              .max_args = ANY_ARGS, .run = cmd_key_sign, KEY_ACTION},
  key_verify = {.name = "key verify", .help = "verify the signature of a file", .flags = verify_flags,
                .max_args = ANY_ARGS, .run = cmd_key_verify, KEY_ACTION};

const struct command cmd_key = {
  .name = "trireme key", .help = "make keys; encrypt, decrypt, sign, verify files; change their key",
  .usage = usage,
  .group = (const struct command *const[]){&key_make, &key_encrypt, &key_decrypt, &key_rotate, &key_sign,
                                           &key_verify, NULL},
  .member = "key action",
};
