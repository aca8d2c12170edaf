#ifndef SHA256_H
#define SHA256_H

#include "agent.h"

struct sha256 {
	uint32_t state[8];
	uint64_t length;
	uint8_t block[64];
};

void sha256_init(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const uint8_t *bytes, size_t length);
void sha256_end(struct sha256 *hash, uint8_t digest[32]);

#endif
