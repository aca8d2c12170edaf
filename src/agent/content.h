/* What the host sends to a file operation: read with its hash, checked at its end, and written without its holes. */
#ifndef CONTENT_H
#define CONTENT_H

#include "fileop.h"

/* Before the first read. */
void content_begin(const struct file_request *request);
/* Some of it, at `*bytes` until the next call; 0 at the end. */
size_t content_next(const uint8_t **bytes, size_t most);
/* After the end: the hash agrees, where there is one. Ends the operation otherwise. */
void content_check(const struct file_request *request);

/* What is written to this file goes past the page cache, as far as that can be. */
void content_direct(int fd);
/* Writes to a new file; blocks of zeros become holes. Gives -1 with errno. */
int sparse_write(int fd, const uint8_t *bytes, size_t length, uint64_t offset);
/* After the last byte: the file may end with a hole. */
int sparse_end(int fd, uint64_t length);

#endif
