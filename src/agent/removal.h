#ifndef REMOVAL_H
#define REMOVAL_H

/* Removes directory/name and everything below, without leaving the mount or following a symlink. False with errno. */
_Bool removal_run(int directory, const char *name);

#endif
