/* Every child that ends, ours or inherited. */
#ifndef REAPER_H
#define REAPER_H

#include <stdbool.h>

bool reaper_init(void);
void reaper_signalled(void);
/* Whether some are known to be left. */
bool reaper_pending(void);
/* Reaps a bounded number. */
void reaper_run(void);

#endif
