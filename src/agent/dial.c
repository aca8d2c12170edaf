#include "dial.h"
enum error_code dial_open(struct channel *channel, const uint8_t *fields, size_t length, int *error) { (void)channel;(void)fields;(void)length;(void)error; return E_SYSTEM; }
void dial_event(struct channel *channel, enum event event) { (void)channel;(void)event; }
bool dial_emit(struct channel *channel) { (void)channel; return false; }
