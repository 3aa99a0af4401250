/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool json_start(struct json *json)
{
	*json = (struct json){0};
	json->out = open_memstream(&json->text, &json->length);
	if (!json->out)
		return false;
	putc('{', json->out);
	return true;
}

/*
 * Bytes of the UTF-8 sequence at text, 0 if there is none: not too long, no
 * surrogate, nothing beyond U+10FFFF (RFC 3629).
 */
static size_t utf8_length(const unsigned char *text)
{
	size_t length = *text < 0x80   ? 1
			: *text < 0xc2 ? 0
			: *text < 0xe0 ? 2
			: *text < 0xf0 ? 3
			: *text < 0xf5 ? 4
				       : 0;

	for (size_t i = 1; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((*text == 0xe0 && text[1] < 0xa0) ||
	    (*text == 0xed && text[1] >= 0xa0) ||
	    (*text == 0xf0 && text[1] < 0x90) ||
	    (*text == 0xf4 && text[1] >= 0x90))
		return 0;
	return length;
}

static void put_string(struct json *json, const char *string)
{
	const unsigned char *text = (const unsigned char *)string;

	putc('"', json->out);
	while (*text) {
		size_t length = utf8_length(text);

		if (length == 0)
			fputs("\\ufffd", json->out);
		else if (*text < ' ')
			fprintf(json->out, "\\u%04x", *text);
		else if (*text == '"' || *text == '\\')
			fprintf(json->out, "\\%c", *text);
		else
			fwrite(text, 1, length, json->out);
		text += length ? length : 1;
	}
	putc('"', json->out);
}

/* What comes before a value. */
static void begin_member(struct json *json, const char *name)
{
	if (json->follows)
		putc(',', json->out);
	json->follows = true;
	if (!name)
		return;
	put_string(json, name);
	putc(':', json->out);
}

static void open_group(struct json *json, const char *name, char bracket)
{
	begin_member(json, name);
	putc(bracket, json->out);
	json->follows = false;
}

static void close_group(struct json *json, char bracket)
{
	putc(bracket, json->out);
	json->follows = true;
}

void json_object(struct json *json, const char *name)
{
	open_group(json, name, '{');
}

void json_end_object(struct json *json)
{
	close_group(json, '}');
}

void json_array(struct json *json, const char *name)
{
	open_group(json, name, '[');
}

void json_end_array(struct json *json)
{
	close_group(json, ']');
}

void json_count(struct json *json, const char *name, uint64_t count)
{
	begin_member(json, name);
	fprintf(json->out, "%llu", (unsigned long long)count);
}

void json_flag(struct json *json, const char *name, bool flag)
{
	begin_member(json, name);
	fputs(flag ? "true" : "false", json->out);
}

void json_number(struct json *json, const char *name, double number)
{
	begin_member(json, name);
	if (isfinite(number))
		fprintf(json->out, "%.9g", number);
	else
		fputs("null", json->out);
}

void json_text(struct json *json, const char *name, const char *text)
{
	begin_member(json, name);
	if (text)
		put_string(json, text);
	else
		fputs("null", json->out);
}

bool json_print(struct json *json, FILE *out)
{
	bool whole;

	putc('}', json->out);
	whole = !ferror(json->out);
	/* (glibc's fclose() does not tell that the text could not be had.) */
	if (fclose(json->out) != 0 || !json->text)
		whole = false;
	if (whole) {
		fwrite(json->text, 1, json->length, out);
		putc('\n', out);
	}
	free(json->text);
	return whole;
}
