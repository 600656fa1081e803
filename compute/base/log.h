/* Structured logs on standard error: one line per event, `time level message key=value…` or, with
 * log_set_json, one JSON object per line. Called only by server/; other code returns errors.
 * If that is systemd's journal, each line begins with its priority. Thread-safe. */
#ifndef ARRAYD_BASE_LOG_H
#define ARRAYD_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Opens those of standard input, output and error that are closed: else the log would go to
 * whatever else gets the number. */
void log_open_standard(void);
void log_set_level(enum log_level level); /* default LOG_INFO */
void log_set_json(bool on);
bool log_enabled(enum log_level level);
/* What a line of that level begins with: "<4>" for the journal, which removes it, else "". */
const char *log_prefix(enum log_level level);

/* `message` is a constant sentence; then key, value pairs of strings, ended by NULL:
 * log_event(LOG_INFO, "ready", "listen", "127.0.0.1:7411", NULL). Values are quoted as needed, and
 * shortened past about a thousand bytes. */
void log_event(enum log_level level, const char *message, ...) __attribute__((sentinel));

#endif
