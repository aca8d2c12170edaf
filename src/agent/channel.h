/* One exec, dial or file operation; the table of them; and the turn-taking of those that have something to send. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "agent.h"
#include "frame.h"
#include "inbox.h"
#include "loop.h"
#include "ring.h"

enum kind { KIND_EXEC, KIND_DIAL, KIND_FILE };

struct exec {
	pid_t pid;
	struct watch status; /* what the child says when it cannot execve */
	struct watch io[2];  /* stdout and stderr, or the terminal */
	struct watch end;    /* of the process, whoever traces it */
	struct ring ring[2];
	bool eof[2];
	uint64_t left[2]; /* bytes still to be taken once the process has ended */
	bool terminal, started, reaped, settled, timed_out;
	bool group_gone; /* nothing of its process group and session was left when it ended */
	int wait_status;
	bool tracers_killed;
	uint64_t deadline, settle_at, retry_at; /* ms; UINT64_MAX for none */
	uint64_t overdue_at;                    /* a process that ended or was killed should have been reaped by then */
	uint64_t tree_signals;                  /* bit n - 1: signal n is to be sent to the whole tree */
	uint64_t begun_signals;                 /* the same, to what the process began since the mark */
	uint64_t later_signals;                 /* to the process itself, when those have been sent */
	struct {
		uint64_t ticks; /* of /proc/PID/stat: since the machine's start */
		pid_t pid;      /* the newest process at that time */
	} mark;
};

struct dial {
	bool connected;
	bool second; /* there is another address to try: ::1 */
	uint16_t port;
};

struct channel {
	uint32_t number;
	enum kind kind;
	struct channel *hash_next, *ready_next;
	bool queued;
	bool attached; /* the host of now knows it and gets its output */
	bool released; /* the host has forgotten it; some of it still has to end */
	bool started_due, exit_sent, failed;
	bool ack_forced; /* a host that resumes has to learn where stdin stands */
	enum error_code code;
	int error;
	uint32_t window;
	struct inbox in;
	struct watch source; /* a dial's socket, a file operation's child */
	uint64_t sent, acknowledged;
	int source_error;
	pid_t child; /* a file operation's, until reaped */
	bool over;
	struct content_ring *content; /* what the file operation gets, where it gets something */
	struct exec exec;
	struct dial dial;
};

/* A frame of a channel or one that makes a channel. False: the host broke the protocol. */
bool channel_frame(const struct frame *frame);
void channel_event(uint32_t number, enum event event, uint32_t events);
/* Marks it as having something to send. */
void channel_ready(struct channel *channel);
/* Ends it with an ERROR. */
void channel_fail(struct channel *channel, enum error_code code, int error);
/* Forgets it; it is freed when what it started has ended. */
void channel_release(struct channel *channel);
void channel_free(struct channel *channel);
/* An ERROR frame. */
void channel_refuse(uint32_t number, enum error_code code, int error);
/* Whether one more released exec may stay to read what its background processes write. */
bool channel_may_linger(void);

/* The process `pid` ended. False when no channel waits for it. */
bool channels_reaped(pid_t pid, int wait_status);
/* Before a new process gets this id: an ended exec that had the same id has lost its group. */
void channels_forget_pid(pid_t pid);
void channels_timers(void);
/* Wakes the loop for the channels' timers at `at` ms. */
void channels_alarm(uint64_t at);
uint64_t channels_wake(void);
/* An exec with tree signals to be sent, or NULL. */
struct channel *channels_tree_due(void);

/* The host is gone: execs go on, everything else ends. */
void channels_detach(void);
/* Writes HELLO_ACK's records to `at`, unless NULL; gives their length. */
size_t channels_describe(uint8_t *at);
uint32_t channels_highest(void);
/* Puts frames in the queue, in turn, while there is room. True when some are left although there is. */
bool channels_emit(void);

#endif
