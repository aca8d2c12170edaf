#ifndef CONNECT_H
#define CONNECT_H

#include <sys/socket.h>

/* A socket that is connected, or on its way (EPOLLOUT tells); -1 with errno. */
int connect_start(const struct sockaddr *address, socklen_t length);

#endif
