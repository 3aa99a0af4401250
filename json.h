/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one JSON object (RFC 8259) into memory, so that it is printed whole or
 * not at all. Names are NULL for the elements of an array. Failing to have
 * memory is noticed when it is printed.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out; /* to text */
	char *text;
	size_t length;
	bool follows; /* a member stands before, so a comma is due */
};

/* Begins the object that holds all. False: no memory. */
bool json_start(struct json *json);

void json_object(struct json *json, const char *name);
void json_end_object(struct json *json);
void json_array(struct json *json, const char *name);
void json_end_array(struct json *json);

void json_count(struct json *json, const char *name, uint64_t count);
void json_flag(struct json *json, const char *name, bool flag);

/* A finite number; null for any other. */
void json_number(struct json *json, const char *name, double number);

/* Bytes that are no UTF-8 become U+FFFD; null for NULL. */
void json_text(struct json *json, const char *name, const char *text);

/* Ends the object and prints it as a line. False: no memory, nothing printed.
 */
bool json_print(struct json *json, FILE *out);

#endif /* JSON_H */
