/*
 * connects PORT COUNT
 *
 * Connects to loopback in every way there is, and then COUNT times more, as fast as it can. What the port answers is of no interest.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in four;
static struct sockaddr_in6 six, mapped;

static void reach(int type, const void *address, socklen_t size)
{
	int fd = socket(((const struct sockaddr *)address)->sa_family, type, 0);
	(void)!connect(fd, address, size);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	in_port_t port = htons(atoi(argv[1]));
	four = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port };
	six = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = port };
	mapped = six;
	inet_pton(AF_INET, "127.0.0.1", &four.sin_addr);
	inet_pton(AF_INET6, "::1", &six.sin6_addr);
	inet_pton(AF_INET6, "::ffff:127.0.0.2", &mapped.sin6_addr);
	reach(SOCK_STREAM, &four, sizeof four);
	reach(SOCK_STREAM, &six, sizeof six);
	reach(SOCK_STREAM, &mapped, sizeof mapped);
	reach(SOCK_DGRAM, &four, sizeof four);
	reach(SOCK_DGRAM, &six, sizeof six);
	/* By TCP fast open, without connect(2). */
	four.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 2);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	sendto(fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&four, sizeof four);
	close(fd);
	/* By multipath TCP, whose sockets below are connected by the kernel. */
	four.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 3);
	fd = socket(AF_INET, SOCK_STREAM, 262);
	(void)!connect(fd, (struct sockaddr *)&four, sizeof four);
	close(fd);
	/* Nowhere. */
	inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
	reach(SOCK_STREAM, &six, sizeof six);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	for (int count = atoi(argv[2]); count > 0; count--)
		(void)!connect(fd, (struct sockaddr *)&four, sizeof four);
	return 0;
}
