#include "loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"
#include "host.h"
#include "reaper.h"
#include "tree.h"

enum { EVENTS = 64, IDLE_MS = 1000 };

static int epoll = -1;

bool loop_init(void)
{
	epoll = epoll_create1(EPOLL_CLOEXEC);
	return epoll >= 0;
}

uint64_t loop_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void watch_set(struct watch *watch, enum event event, uint32_t channel, uint32_t events)
{
	if (watch->fd < 0 || watch->events == events)
		return;
	struct epoll_event wanted = { .events = events, .data.u64 = (uint64_t)channel << 8 | (uint64_t)event };
	int operation = events == 0 ? EPOLL_CTL_DEL : watch->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	if (epoll_ctl(epoll, operation, watch->fd, &wanted) == 0)
		watch->events = events;
}

void watch_close(struct watch *watch)
{
	if (watch->fd < 0)
		return;
	watch_set(watch, 0, 0, 0);
	close(watch->fd);
	watch->fd = -1;
	watch->events = 0;
}

static void dispatch(uint64_t data, uint32_t events)
{
	enum event event = (enum event)(data & 0xFF);
	switch (event) {
	case EV_LISTEN:
		host_accept();
		break;
	case EV_HOST_IN:
		host_readable();
		break;
	case EV_HOST_OUT:
		break; /* every turn ends by sending */
	case EV_CHILD:
		reaper_signalled();
		break;
	default:
		channel_event((uint32_t)(data >> 8), event, events);
	}
}

void loop_turn(int timeout)
{
	static bool busy;
	struct epoll_event events[EVENTS];
	uint64_t wake = channels_wake();
	uint64_t tree = tree_wake();
	if (tree < wake)
		wake = tree;
	if (reaper_pending())
		wake = 0;
	if (wake != UINT64_MAX) {
		uint64_t now = loop_now();
		uint64_t left = wake > now ? wake - now : 0;
		if (left > 3600000)
			left = 3600000;
		if (timeout < 0 || left < (uint64_t)timeout)
			timeout = (int)left;
	}
	bool settling = busy && (timeout < 0 || timeout > IDLE_MS);
	int count = epoll_wait(epoll, events, EVENTS, settling ? IDLE_MS : timeout);
	if (count == 0 && settling) {
		host_trim();
		busy = false;
	}
	if (count > 0)
		busy = true;
	for (int i = 0; i < count; i++)
		dispatch(events[i].data.u64, events[i].events);
	reaper_run();
	channels_timers();
	tree_run();
	host_send();
}
