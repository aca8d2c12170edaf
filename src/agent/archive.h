/* A file or a tree as a tar archive, in the forked child. */
#ifndef ARCHIVE_H
#define ARCHIVE_H

#include "fileop.h"

_Noreturn void archive_run(const struct file_request *request);

#endif
