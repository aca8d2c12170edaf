#define _GNU_SOURCE
#include "temporary.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "answer.h"

static int directory = -1;
static char made[32];

static void discard(void)
{
	if (directory >= 0)
		unlinkat(directory, made, 0);
	directory = -1;
}

const char *temporary_name(int where)
{
	static uint64_t random;
	if (random == 0)
		(void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
	snprintf(made, sizeof made, ".dsec-%016llx.tmp", (unsigned long long)random++);
	directory = where;
	answer_on_failure(discard);
	return made;
}

int temporary_place(const char *name)
{
	if (renameat(directory, made, directory, name) < 0)
		return -1;
	directory = -1;
	return 0;
}

int temporary_place_link(const char *name)
{
	if (renameat(directory, made, directory, name) < 0)
		return -1;
	/* It was another name of what is there already: then nothing was renamed. */
	discard();
	return 0;
}
