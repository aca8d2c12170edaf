/* The sandbox's own users and groups. Runs in the child only: the files are whatever root inside made of them. */
#ifndef USER_H
#define USER_H

#include "agent.h"

enum { GROUPS_MAX = 256, HOME_MAX = 1024, NAME_MAX_LENGTH = 256 };

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[GROUPS_MAX];
	size_t group_count;
	char name[NAME_MAX_LENGTH];
	char home[HOME_MAX];
};

/* The whole of a regular file up to a limit, ended by a zero; NULL otherwise. Never waits, whatever is there. */
char *user_read(const char *path);
/* `passwd` and `group` are the files' texts, or NULL. `spec`: name, uid, name:group or uid:gid. */
bool user_lookup(const char *spec, const char *passwd, const char *group, struct user *user);

#endif
