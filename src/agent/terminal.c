#define _GNU_SOURCE
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void terminal_resize(int master, uint16_t rows, uint16_t columns)
{
	struct winsize size = { .ws_row = rows, .ws_col = columns };
	ioctl(master, TIOCSWINSZ, &size);
}

bool terminal_open(uint16_t rows, uint16_t columns, int *master, int *slave)
{
	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	/* Root inside may have put anything in its place. */
	struct stat stat;
	int unlock = 0;
	if (fstat(fd, &stat) < 0 || !S_ISCHR(stat.st_mode) || stat.st_rdev != makedev(5, 2) ||
	    ioctl(fd, TIOCSPTLCK, &unlock) < 0) {
		close(fd);
		errno = ENODEV;
		return false;
	}
	/* The peer itself, not what a path in /dev/pts leads to. */
	*slave = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*slave < 0) {
		int failure = errno;
		close(fd);
		errno = failure;
		return false;
	}
	terminal_resize(fd, rows, columns);
	*master = fd;
	return true;
}
