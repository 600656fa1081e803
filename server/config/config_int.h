/* The table of options: config.c, which lists it, and config_read.c, which fills in a struct config
 * by it. For these two alone. */
#ifndef ARRAYD_SERVER_CONFIG_INT_H
#define ARRAYD_SERVER_CONFIG_INT_H

#include "server/config/config.h"

enum kind { SET_TEXT, SET_LIST, SET_FLAG, SET_LEVEL, SET_COUNT, SET_SIZE, SET_OCTAL, SET_SECONDS };

struct setting {
    const char *name;
    enum kind kind;
    bool limit; /* in /v1/info */
    size_t offset;
    const char *initial; /* NULL: none */
    double lo, hi;
    const char *argument, *help;
};

#define AT(field)     offsetof(struct config, field)
#define MOST_SETTINGS 140
extern const struct setting config_settings[];
extern const size_t config_n_settings; /* at most MOST_SETTINGS */

void config_clear_list(struct config_list *l);
void config_each_limit(const struct config *c,
                       void (*visit)(void *user, const char *name, double value), void *user);

#endif
