/* The bytes of a file, or of a member of a zip archive, stored or deflated, in order (private to datasets/). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zip_stream;

/* member: of an archive, without ".npy"; NULL: the whole file. */
int zip_stream_open(struct zip_stream **stream, const char *path, const char *member);
/* Sets *found if an archive has this member. */
int zip_has_member(const char *path, const char *member, bool *found);
void zip_stream_close(struct zip_stream *stream); /* NULL is allowed */
uint64_t zip_stream_left(const struct zip_stream *stream); /* bytes that are still to be read */

/* Reads exactly `count` bytes. With the last byte of a member its checksum is compared (in a build with zlib). */
int zip_stream_read(struct zip_stream *stream, void *to, size_t count);
