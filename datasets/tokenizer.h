/* Conversion of texts to tokens and back. Kinds of vocabulary:
 *
 *   characters  each name is one character of Unicode, in UTF-8
 *   bytes       token b is the byte b
 *   bpe         each name is a string of bytes, all 256 single ones among them; text is split into words
 *               (pretokenizer.h), the bytes of a word are joined by the merges (bpe.h)
 *
 * Names that stand for bytes are written in the alphabet of GPT-2, in which each byte is a printable character: the
 * printable ones of Latin-1 stand for themselves, the others, in order, are U+0100 and the following (a space is
 * U+0120). A name with any other character stands for itself: <|endoftext|> in some files. */
#pragma once

#include "train/dataset.h"

enum trm_token_kind { TRM_TOKEN_CHARACTERS, TRM_TOKEN_BYTES, TRM_TOKEN_BPE, TRM_TOKEN_KINDS };
extern const char *const trm_token_kind_names[TRM_TOKEN_KINDS + 1]; /* ends with NULL */

struct trm_tokenizer;

/* Opens a tokenizer for a vocabulary, name (size). from: path of the file, for messages. The arguments are copied.
 * Errors: an unknown encoding, missing names, merges of or to tokens that are not in the vocabulary. */
int trm_tokenizer_open(struct trm_tokenizer **tokenizer, const char *from, const struct trm_encoding *encoding,
                       char *const *name, size_t size);
/* Opens a tokenizer for the vocabulary of a data set file, which must have `size` tokens. */
int trm_tokenizer_of_data(struct trm_tokenizer **tokenizer, const char *path, size_t size);
void trm_tokenizer_close(struct trm_tokenizer *tokenizer); /* NULL is allowed */

/* A growing array of tokens. Initialized with {0}, released with trm_free(token). */
struct trm_tokens {
  int32_t *token;
  size_t count, capacity;
};

void trm_tokens_add(struct trm_tokens *tokens, int32_t token);

/* Appends the tokens of a text. Errors (none for bytes): text that is not UTF-8, a character that is not in the
 * vocabulary. */
int trm_tokenizer_encode(struct trm_tokenizer *tokenizer, const char *text, size_t bytes, struct trm_tokens *tokens);

/* Returns the bytes of a token in [0, size); not NUL-terminated, owned by the tokenizer. */
const char *trm_tokenizer_text(const struct trm_tokenizer *tokenizer, int32_t token, size_t *bytes);

/* Returns the character that represents a byte in GPT-2's alphabet. */
int32_t trm_byte_character(unsigned char byte);
