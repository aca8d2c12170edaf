/* Takes a tar archive apart below a directory, in the forked child. */
#ifndef EXTRACT_H
#define EXTRACT_H

#include "fileop.h"

_Noreturn void extract_run(const struct file_request *request);

#endif
