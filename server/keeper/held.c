/* A table by name. */
#include "server/keeper/held.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct held *held_find(const struct held *table, const char *name)
{
    const struct held *h;
    HASH_FIND_STR(table, name, h);
    return h;
}

bool held_put(struct held **table, const char *name, unsigned number, int take_fd)
{
    struct held *h;
    HASH_FIND_STR(*table, name, h);
    if (h) {
        close(h->fd);
        h->fd = take_fd;
        h->number = number;
        return true;
    }
    h = mem_calloc(1, sizeof *h);
    if (h) {
        h->fd = take_fd;
        h->number = number;
        strcpy(h->name, name);
        HASH_ADD_STR(*table, name, h);
        if (h->hh.tbl)
            return true;
    }
    mem_free(h);
    close(take_fd);
    return false;
}

bool held_drop(struct held **table, const char *name)
{
    struct held *h;
    HASH_FIND_STR(*table, name, h);
    if (!h)
        return false;
    HASH_DEL(*table, h);
    close(h->fd);
    mem_free(h);
    return true;
}

size_t held_count(const struct held *table, const char *prefix)
{
    size_t n = 0;
    for (const struct held *h = table; h; h = h->hh.next)
        n += !strncmp(h->name, prefix, strlen(prefix));
    return n;
}

void held_pass(const struct held *table, const char *prefix, const char *variable)
{
    char text[4096] = "";
    size_t n = 0;
    for (const struct held *h = table; h && n < sizeof text - 16; h = h->hh.next) {
        if (strncmp(h->name, prefix, strlen(prefix)) != 0)
            continue;
        fcntl(h->fd, F_SETFD, 0);
        n += (size_t)snprintf(text + n, sizeof text - n, "%d ", h->fd);
    }
    setenv(variable, text, 1);
}

void held_free(struct held **table)
{
    while (*table)
        held_drop(table, (*table)->name);
}
