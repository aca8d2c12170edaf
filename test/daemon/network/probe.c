/*
 * What somebody in a sandbox tries of the network. "up" on stderr once it has what it asked for; an errno's name there, and
 * status 1, when it has not, or when it is taken away.
 *
 *   probe tcp|udp|icmp|raw HOST PORT [from ADDRESS]
 *       bytes of stdin go out, what comes is written to stdout, until either ends. A read of stdin is a datagram. icmp is what needs
 *       no privilege; the PORT of raw is a protocol. from: another source address.
 *   probe frames LINK              lines of stdin, in hexadecimal, are sent as they are
 *   probe scan HOST FIRST LAST     prints the TCP ports that answer
 *   probe listen PORT              sends back what it gets, until stdin ends
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PACKET_FAMILY = 17, SCAN_MS = 250, MOST_PORTS = 512 };

struct packet_address {
	unsigned short family, protocol;
	int link;
	unsigned char rest[12];
};

/* musl has no strerrorname_np. */
static _Noreturn void fail(void)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{ EPERM, "EPERM" },
		{ EACCES, "EACCES" },
		{ EINVAL, "EINVAL" },
		{ EPIPE, "EPIPE" },
		{ ENODEV, "ENODEV" },
		{ EAFNOSUPPORT, "EAFNOSUPPORT" },
		{ EPROTONOSUPPORT, "EPROTONOSUPPORT" },
		{ ECONNREFUSED, "ECONNREFUSED" },
		{ ECONNRESET, "ECONNRESET" },
		{ EHOSTUNREACH, "EHOSTUNREACH" },
		{ ENETUNREACH, "ENETUNREACH" },
		{ EADDRNOTAVAIL, "EADDRNOTAVAIL" },
		{ EADDRINUSE, "EADDRINUSE" },
		{ ETIMEDOUT, "ETIMEDOUT" },
	};
	const int code = errno;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == code) {
			fprintf(stderr, "%s\n", names[i].name);
			exit(1);
		}
	fprintf(stderr, "%s\n", strerror(code));
	exit(1);
}

static long must(long result)
{
	if (result < 0)
		fail();
	return result;
}

static void up(void)
{
	fputs("up\n", stderr);
}

static socklen_t address(struct sockaddr_storage *storage, const char *host, int port)
{
	memset(storage, 0, sizeof *storage);
	if (strchr(host, ':') == NULL) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)storage;
		v4->sin_family = AF_INET;
		v4->sin_port = htons((unsigned short)port);
		inet_pton(AF_INET, host, &v4->sin_addr);
		return sizeof *v4;
	}
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)storage;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((unsigned short)port);
	inet_pton(AF_INET6, host, &v6->sin6_addr);
	return sizeof *v6;
}

static void write_all(const char *bytes, ssize_t left)
{
	while (left > 0) {
		const ssize_t written = must(write(STDOUT_FILENO, bytes, (size_t)left));
		bytes += written;
		left -= written;
	}
}

static void raise_error_of(int fd)
{
	socklen_t length = sizeof errno;
	int error = 0;
	must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	if (error == 0)
		return;
	errno = error;
	fail();
}

/* What has been read of stdin and not sent yet waits, so that either end is noticed at any time. */
static void relay(int fd, int is_stream)
{
	static char waiting[65536], came[65536];
	ssize_t pending = 0;
	for (;;) {
		struct pollfd polled[] = {
			{ .fd = STDIN_FILENO, .events = pending == 0 ? POLLIN : 0 },
			{ .fd = fd, .events = (short)(POLLIN | (pending == 0 ? 0 : POLLOUT)) },
		};
		must(poll(polled, 2, -1));
		if (polled[1].revents != 0) {
			const ssize_t got = recv(fd, came, sizeof came, 0);
			if (got < 0 && errno != EAGAIN)
				fail();
			if (got == 0 && is_stream)
				return;
			write_all(came, got);
		}
		if (pending > 0 && (polled[1].revents & POLLOUT) != 0) {
			const ssize_t sent = send(fd, waiting, (size_t)pending, MSG_NOSIGNAL);
			if (sent < 0 && errno != EAGAIN)
				fail();
			if (sent > 0) {
				pending -= sent;
				memmove(waiting, waiting + sent, (size_t)pending);
			}
		}
		if ((polled[0].revents & POLLIN) != 0) {
			pending = must(read(STDIN_FILENO, waiting, sizeof waiting));
			if (pending == 0)
				return;
		} else if ((polled[0].revents & POLLHUP) != 0)
			return;
	}
}

static int open_socket(const char *type, int family, int protocol)
{
	if (strcmp(type, "tcp") == 0)
		return socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (strcmp(type, "udp") == 0)
		return socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (strcmp(type, "icmp") == 0)
		return socket(family, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_ICMP);
	return socket(family, SOCK_RAW | SOCK_NONBLOCK, protocol);
}

static void pretend(int fd, const char *source)
{
	struct sockaddr_storage other;
	const socklen_t length = address(&other, source, 0);
	const int on = 1;
	must(setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on));
	must(bind(fd, (struct sockaddr *)&other, length));
}

static void speak(const char *type, const char *host, int port, const char *source)
{
	struct sockaddr_storage peer;
	const socklen_t length = address(&peer, host, port);
	const int on = 1, is_stream = strcmp(type, "tcp") == 0;
	const int fd = (int)must(open_socket(type, peer.ss_family, port));
	must(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on));
	if (source != NULL)
		pretend(fd, source);
	if (connect(fd, (struct sockaddr *)&peer, length) < 0) {
		if (errno != EINPROGRESS)
			fail();
		struct pollfd polled[] = { { .fd = fd, .events = POLLOUT }, { .fd = STDIN_FILENO, .events = POLLIN } };
		do
			must(poll(polled, 2, -1));
		while (polled[0].revents == 0 && polled[1].revents == 0);
		if (polled[0].revents == 0)
			exit(0);
		raise_error_of(fd);
	}
	up();
	relay(fd, is_stream);
}

static void frames(const char *link)
{
	static char line[8192];
	static unsigned char bytes[4096];
	const int fd = (int)must(socket(PACKET_FAMILY, SOCK_RAW, 0));
	struct packet_address to = { .family = PACKET_FAMILY, .link = (int)if_nametoindex(link) };
	up();
	while (fgets(line, sizeof line, stdin) != NULL) {
		size_t count = 0;
		unsigned int byte;
		while (sscanf(line + 2 * count, "%2x", &byte) == 1)
			bytes[count++] = (unsigned char)byte;
		must(sendto(fd, bytes, count, 0, (struct sockaddr *)&to, sizeof to));
	}
}

static void scan(const char *host, int first, int last)
{
	static struct pollfd polled[MOST_PORTS];
	nfds_t count = 0;
	for (int port = first; port <= last && count < MOST_PORTS; port++) {
		struct sockaddr_storage peer;
		const socklen_t length = address(&peer, host, port);
		const int fd = (int)must(socket(peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
		connect(fd, (struct sockaddr *)&peer, length);
		polled[count++] = (struct pollfd){ .fd = fd, .events = POLLOUT };
	}
	up();
	/* Refusals come at once, and no more than so many a second. */
	usleep(SCAN_MS * 1000);
	must(poll(polled, count, 0));
	for (nfds_t i = 0; i < count; i++)
		if ((polled[i].revents & (POLLOUT | POLLERR | POLLHUP)) == POLLOUT)
			printf("%d\n", first + (int)i);
}

static void echo(int fd)
{
	static char bytes[65536];
	ssize_t got;
	while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
		if (send(fd, bytes, (size_t)got, MSG_NOSIGNAL) < 0)
			break;
	_exit(0);
}

static void listen_on(int port)
{
	struct sockaddr_storage own;
	const socklen_t length = address(&own, "0.0.0.0", port);
	const int fd = (int)must(socket(AF_INET, SOCK_STREAM, 0));
	must(bind(fd, (struct sockaddr *)&own, length));
	must(listen(fd, 16));
	signal(SIGCHLD, SIG_IGN);
	up();
	struct pollfd polled[] = { { .fd = fd, .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };
	for (;;) {
		must(poll(polled, 2, -1));
		if (polled[1].revents != 0)
			return;
		const int client = (int)must(accept(fd, NULL, NULL));
		if (must(fork()) == 0)
			echo(client);
		close(client);
	}
}

int main(int count, char **words)
{
	if (count == 5 && strcmp(words[1], "scan") == 0)
		scan(words[2], atoi(words[3]), atoi(words[4]));
	else if (count == 3 && strcmp(words[1], "frames") == 0)
		frames(words[2]);
	else if (count == 3 && strcmp(words[1], "listen") == 0)
		listen_on(atoi(words[2]));
	else if (count == 4 || count == 6)
		speak(words[1], words[2], atoi(words[3]), count == 6 ? words[5] : NULL);
	else
		return 2;
	return 0;
}
