/* The parts of the fuzz test: chance, the sandbox that is not there, and the sessions. */
#ifndef FUZZ_H
#define FUZZ_H

#include "../agent.h"

enum { TRACKED = 64 };

extern uint64_t random_state;
/* Whether allocations fail now and then. */
extern bool failing_memory;
extern uint8_t noise[65536];
/* How far each recent channel's output went. */
extern uint64_t seen[TRACKED][2];

/* The next one that no frame has used. */
extern uint32_t next_channel;

/* 0 <= result < below */
uint32_t rnd(uint32_t below);

/* Ends one of the processes there are, if it is its turn. */
void world_turn(void);

/* At most 70,000 bytes. */
size_t make_frame(uint8_t *at);
size_t mutate(uint8_t *frame, size_t length);

#endif
