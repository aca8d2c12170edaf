/* Paths of file operations: resolved below the sandbox's root, without /proc's magic links. */
#ifndef PATH_H
#define PATH_H

#include "agent.h"

enum { BASE_MAX = 256, PATH_LENGTH_MAX = 4096 };

/* All give -1 with errno. O_CLOEXEC is added. */
int path_open(const char *path, int flags);
/* An O_PATH descriptor of the directory that the last component is in; that one is put in `base`. */
int path_parent(const char *path, char base[BASE_MAX]);
/* The same of the file that is meant in the end, whether it exists or not: a symlink at the end is followed. */
int path_target(const char *path, char base[BASE_MAX]);
/* A directory in another, on the same mount, not through a symlink. */
int path_subdirectory(int directory, const char *name);

#endif
