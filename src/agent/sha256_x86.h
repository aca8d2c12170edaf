#ifndef SHA256_X86_H
#define SHA256_X86_H

#include "agent.h"

bool sha256_x86_usable(void);
/* Only where it is usable. `constants`: of FIPS 180-4, 4.2.2. */
void sha256_x86_blocks(uint32_t state[8], const uint8_t *bytes, size_t count, const uint32_t constants[64]);

#endif
