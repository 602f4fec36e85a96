/* Text to tokens, and back. What a vocabulary is made of:
 *
 *   characters  each name is one character of Unicode, in UTF-8
 *   bytes       token b is the byte b
 *   bpe         each name is a string of bytes, all 256 single ones among them; text is cut into words (pretokenizer.h), whose
 *               bytes are joined by the merges (bpe.h)
 *
 * Names that stand for bytes are written in the alphabet of GPT-2, in which each byte is a printable character: the
 * printable ones of Latin-1 stand for themselves, the others, in order, are U+0100 and the following (a space is
 * U+0120). A name with any other character stands for itself: <|endoftext|> in some files. */
#ifndef TRM_DATASETS_TOKENIZER_H
#define TRM_DATASETS_TOKENIZER_H

#include "train/dataset.h"

struct trm_tokenizer;

/* name (size): the vocabulary. from: the file, for messages. Nothing of the arguments is kept. Errors: an encoding that
 * is not known, names that are missing, merges of tokens or to tokens that the vocabulary has not. */
int trm_tokenizer_open(struct trm_tokenizer **tokenizer, const char *from, const struct trm_encoding *encoding,
                       char *const *name, size_t size);
/* The same with the vocabulary of a data set file, which must have `size` tokens. */
int trm_tokenizer_of_data(struct trm_tokenizer **tokenizer, const char *path, size_t size);
void trm_tokenizer_close(struct trm_tokenizer *tokenizer); /* NULL is allowed */

/* Tokens that grow. Begins as {0}; ends with trm_free(token). */
struct trm_tokens {
  int32_t *token;
  size_t count, capacity;
};

void trm_tokens_add(struct trm_tokens *tokens, int32_t token);

/* Appends the tokens of a text. Errors: text that is not UTF-8 (of bytes: none), a character that the vocabulary has
 * not. */
int trm_tokenizer_encode(struct trm_tokenizer *tokenizer, const char *text, size_t bytes, struct trm_tokens *tokens);

/* The bytes that a token, below the size, stands for; not NUL-terminated, the tokenizer's own. */
const char *trm_tokenizer_text(const struct trm_tokenizer *tokenizer, int32_t token, size_t *bytes);

/* A byte as a character of the alphabet. */
int32_t trm_byte_character(unsigned char byte);

#endif
