#include "exec_request.h"

#include "frame.h"

static bool has_zero(const struct field *field)
{
	return field->length > 0 && memchr(field->bytes, 0, field->length) != NULL;
}

bool exec_request_parse(const uint8_t *fields, size_t length, struct exec_request *request)
{
	const uint8_t *at = fields, *end = fields + length;
	struct field field;
	bool malformed = false, argv = false;
	*request = (struct exec_request){ .window = WINDOW_DEFAULT, .rows = 24, .columns = 80 };
	while (field_next(&at, end, &field, &malformed)) {
		switch (field.tag) {
		case 1:
			argv = true;
			malformed |= has_zero(&field);
			break;
		case 2:
			malformed |= has_zero(&field) || !memchr(field.bytes, '=', field.length);
			break;
		case 3:
			malformed |= has_zero(&field) || field.length == 0 || field.bytes[0] != '/';
			break;
		case 4:
			malformed |= has_zero(&field) || field.length == 0;
			break;
		case 5:
			if (field.length != 4)
				return false;
			request->flags = get32(field.bytes);
			break;
		case 6:
			if (field.length != 8)
				return false;
			request->timeout = get64(field.bytes);
			break;
		case 7:
			if (field.length != 4)
				return false;
			request->rows = get16(field.bytes);
			request->columns = get16(field.bytes + 2);
			break;
		case 8:
			if (field.length != 4)
				return false;
			request->window = get32(field.bytes);
			break;
		default:
			return false;
		}
		if (malformed)
			return false;
	}
	return argv && !malformed && request->flags <= (EXEC_TERMINAL | EXEC_STDIN) &&
	       request->window >= WINDOW_MIN && request->window <= WINDOW_MAX;
}
