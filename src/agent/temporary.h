/* What is made under another name beside its place first: a name only ever stands for something whole. One at a time. */
#ifndef TEMPORARY_H
#define TEMPORARY_H

/* The name to make it under, in `directory`, which nobody can have guessed. It goes when the operation fails. */
const char *temporary_name(int directory);
/* Puts it in its place. -1 with errno. */
int temporary_place(const char *name);
/* The same of another name of a file. */
int temporary_place_link(const char *name);

#endif
