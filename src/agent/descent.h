/*
 * The way from the directory that an archive is taken apart in to the one that an entry belongs in. Each step is one name, opened in
 * the directory before it and never through a symlink, whoever planted it: nothing is made or changed outside.
 */
#ifndef DESCENT_H
#define DESCENT_H

#include "agent.h"
#include "tar.h"

/* Who owns what is made: the archive's word, or always the same. */
struct owner {
	bool kept;
	uid_t uid;
	gid_t gid;
};

void descent_begin(int directory, const struct owner *owner);
/*
 * The directory of an entry, made with what leads there where it is missing; `leaf` is its last component, empty for the directory
 * that all is below. -1 with errno; EINVAL for a name that leads out.
 */
int descent_parent(const char *name, char leaf[]);
/* The directory `leaf` of the one that was asked for last; gets mode, owner and time when everything in it is done. */
int descent_directory(const char *leaf, const struct tar_member *member);
/* As descent_parent, but for what has to be there already. The caller closes it. */
int descent_find(const char *name, char leaf[]);
void descent_end(void);

/* Mode, owner and time of an open file; set-id bits only with the owner they were meant for. -1 with errno. */
int descent_describe(int fd, const struct tar_member *member);
/* Owner and time of a symlink. */
int descent_describe_link(int directory, const char *name, const struct tar_member *member);

#endif
