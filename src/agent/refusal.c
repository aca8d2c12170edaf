#include "channel.h"
#include "host.h"

static const char *describe(enum error_code code)
{
	static const char *const text[] = {
		[E_MALFORMED] = "malformed request",
		[E_USER] = "no such user or group",
		[E_CWD] = "cannot enter the working directory",
		[E_NOT_FOUND] = "command not found",
		[E_NOT_EXECUTABLE] = "command cannot be executed",
		[E_LIMIT] = "too many channels or out of memory",
		[E_SYSTEM] = "system call failed",
		[E_NO_CHANNEL] = "no such channel",
		[E_CHANNEL_USED] = "channel number was used before",
		[E_CONTENT] = "content does not match",
		[E_ARCHIVE] = "this is no tar archive, or it is damaged or cut off",
	};
	return code < sizeof text / sizeof *text && text[code] ? text[code] : "";
}

void channel_refuse(uint32_t number, enum error_code code, int error)
{
	out_error(number, code, error, describe(code));
}
