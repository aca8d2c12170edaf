#include "file.h"
enum error_code file_open(struct channel *channel, const uint8_t *fields, size_t length, int *error) { (void)channel;(void)fields;(void)length;(void)error; return E_SYSTEM; }
void file_event(struct channel *channel, enum event event) { (void)channel;(void)event; }
bool file_emit(struct channel *channel) { (void)channel; return false; }
void file_finish(struct channel *channel) { (void)channel; }
void file_release(struct channel *channel) { channel_free(channel); }
