/* SPDX-License-Identifier: Apache-2.0 */
/* What a result depends on besides its options, as far as the machine tells. */
#ifndef ENVIRONMENT_H
#define ENVIRONMENT_H

#include "json.h"

/*
 * Writes the object "environment": cpu, architecture, kernel, cpus_online,
 * numa_nodes, governor (of CPU 0), thp (the system's setting), memory_bytes
 * (that the process may have) and caches (of CPU 0). Texts that the machine
 * does not tell are null.
 */
void environment_json(struct json *json);

#endif /* ENVIRONMENT_H */
