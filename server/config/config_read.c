/* Settings as text: the file, then the command line. The file is read before the command line is
 * applied, so the command line wins; a list given there replaces the file's. */
#include "server/config/config_int.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "compute/base/ini.h"
#include "compute/base/mem.h"

/* The values getopt_long returns. They start past every character: it returns ':' and '?'
 * itself. */
enum { OPT_HELP = 1000, OPT_VERSION, OPT_SETTING };

/* --- values --- */

static enum err_code bad(const struct setting *s, const char *value, const char *want,
                         struct err *e)
{
    return err_set(e, ERR_BAD_FIELD, "%s: '%.100s' is not %s", s->name, value, want);
}

static enum err_code set_list(struct config_list *l, const char *value, struct err *e)
{
    char **items = mem_reallocarray(l->items, l->n + 1, sizeof *items);
    if (!items)
        return err_oom(e);
    l->items = items;
    items[l->n] = mem_strdup(value);
    if (!items[l->n])
        return err_oom(e);
    l->n++;
    return ERR_OK;
}

static enum err_code set_number(const struct setting *s, void *at, const char *value, struct err *e)
{
    char *end = NULL, want[256];
    double v = 0;
    bool ok = true;
    errno = 0;
    switch (s->kind) {
    case SET_SIZE:
        ok = ini_size(value, &v);
        v = floor(v);
        break;
    case SET_SECONDS:
        v = strtod(value, &end);
        break;
    case SET_OCTAL:
        v = (double)strtol(value, &end, 8);
        break;
    default:
        v = (double)strtoll(value, &end, 10);
        break;
    }
    if (end && (end == value || *end))
        ok = false;
    if (!ok || errno || !(v >= s->lo && v <= s->hi)) {
        if (s->kind == SET_OCTAL)
            snprintf(want, sizeof want, "an octal mode from 0 to 0777");
        else
            snprintf(want, sizeof want, "a %s from %.16g to %.16g%s",
                     s->kind == SET_SIZE      ? "size"
                     : s->kind == SET_SECONDS ? "number of seconds"
                                              : "number",
                     s->lo, s->hi, s->kind == SET_SIZE ? ": " INI_SIZE_FORM : "");
        return bad(s, value, want, e);
    }
    if (s->kind == SET_SECONDS)
        *(double *)at = v;
    else
        *(int64_t *)at = (int64_t)v;
    return ERR_OK;
}

static enum err_code set_value(struct config *c, const struct setting *s, const char *value,
                               struct err *e)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    static const char *const on[] = {"yes", "true", "on", "1"}, *const off[] = {"no", "false",
                                                                                "off", "0"};
    void *at = (char *)c + s->offset;
    switch (s->kind) {
    case SET_TEXT: {
        char *copy = mem_strdup(value);
        if (!copy)
            return err_oom(e);
        mem_free(*(char **)at);
        *(char **)at = copy;
        return ERR_OK;
    }
    case SET_LIST:
        if (!*value)
            return bad(s, value, "a value", e);
        return set_list(at, value, e);
    case SET_FLAG:
        for (size_t i = 0; i < 4; i++)
            if (!strcasecmp(value, on[i]) || !strcasecmp(value, off[i])) {
                *(bool *)at = !strcasecmp(value, on[i]);
                return ERR_OK;
            }
        return bad(s, value, "yes or no", e);
    case SET_LEVEL:
        for (int i = 0; i < 4; i++)
            if (!strcmp(value, levels[i])) {
                *(enum log_level *)at = (enum log_level)i;
                return ERR_OK;
            }
        return bad(s, value, "one of error, warn, info, debug", e);
    default:
        return set_number(s, at, value, e);
    }
}

static enum err_code defaults(struct config *c, bool lists, struct err *e)
{
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *s = &config_settings[i];
        if (!s->initial || (s->kind == SET_LIST) != lists)
            continue;
        if (lists && ((struct config_list *)((char *)c + s->offset))->n)
            continue;
        TRY(set_value(c, s, s->initial, e));
    }
    return ERR_OK;
}

/* --- the file --- */

static enum err_code on_value(struct config *c, const struct ini_line *l, bool seen[MOST_SETTINGS],
                              struct err *e)
{
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *s = &config_settings[i];
        if (!ini_is(l->name, s->name) || s->offset == AT(file))
            continue;
        if (seen[i] && s->kind != SET_LIST)
            return err_set(e, ERR_BAD_FIELD, "'%s' is set twice", s->name);
        seen[i] = true;
        _cleanup_free_ char *value = mem_strndup(l->value.at, l->value.n);
        return value ? set_value(c, s, value, e) : err_oom(e);
    }
    return err_set(e, ERR_BAD_FIELD, "unknown setting '%.*s'",
                   (int)(l->name.n > 64 ? 64 : l->name.n), l->name.at);
}

static enum err_code read_text(struct config *c, const struct strb *text, const char *path,
                               struct err *e)
{
    struct ini_line l = {.at = text->data};
    struct err why = ERR_INIT;
    bool seen[MOST_SETTINGS] = {0};
    enum err_code code = ERR_OK;
    while (code == ERR_OK && text->len && ini_next(text->data + text->len, &l)) {
        if (l.kind == INI_MISTAKE)
            code = err_set(&why, ERR_BAD_FIELD, "%s", l.mistake);
        else if (l.kind == INI_SECTION)
            code = err_set(&why, ERR_BAD_FIELD, "sections are not supported, but found [%.*s]",
                           (int)(l.name.n > 64 ? 64 : l.name.n), l.name.at);
        else if (l.kind == INI_VALUE)
            code = on_value(c, &l, seen, &why);
    }
    return code == ERR_BAD_FIELD ? err_set(e, code, "%s: line %zu: %s", path, l.number, why.message)
           : code                ? err_oom(e)
                                 : ERR_OK;
}

static enum err_code read_file(struct config *c, const char *path, struct err *e)
{
    _cleanup_strb_ struct strb text = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno));
    enum err_code code = ini_read(fd, path, &text, e);
    close(fd);
    return code != ERR_OK ? code : read_text(c, &text, path, e);
}

/* --- the command line --- */

static void options(struct option *o)
{
    size_t n = 0;
    for (; n < config_n_settings; n++)
        o[n] = (struct option){config_settings[n].name,
                               config_settings[n].kind == SET_FLAG ? optional_argument
                                                                   : required_argument,
                               NULL, OPT_SETTING + (int)n};
    o[n++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    o[n++] = (struct option){"version", no_argument, NULL, OPT_VERSION};
    o[n] = (struct option){0};
}

/* Two passes: the first finds --config, the second applies everything else. */
static enum err_code command_line(int argc, char *const *argv, struct config *c, bool apply,
                                  enum config_action *ret_action, struct err *e)
{
    struct option o[MOST_SETTINGS + 3];
    bool seen[MOST_SETTINGS] = {0};
    options(o);
    optind = 0;
    opterr = 0;
    for (;;) {
        int at = optind ? optind : 1;
        int k = getopt_long(argc, argv, "+:", o, NULL);
        if (k == -1)
            break;
        if (k == OPT_HELP || k == OPT_VERSION) {
            *ret_action = k == OPT_HELP ? CONFIG_HELP : CONFIG_VERSION;
            continue;
        }
        if (k == ':')
            return err_set(e, ERR_BAD_FIELD, "option '%.64s' needs a value", argv[at]);
        if (k < OPT_SETTING)
            return err_set(e, ERR_BAD_FIELD, "unknown option '%.64s': see --help", argv[at]);
        const struct setting *s = &config_settings[k - OPT_SETTING];
        bool is_file = s->offset == AT(file);
        if (is_file == apply)
            continue;
        if (s->kind == SET_LIST && !seen[k - OPT_SETTING])
            config_clear_list((struct config_list *)((char *)c + s->offset));
        seen[k - OPT_SETTING] = true;
        struct err inner = ERR_INIT;
        enum err_code code = set_value(c, s, optarg ? optarg : "yes", &inner);
        if (code != ERR_OK)
            return err_set(e, code, "--%s", inner.message);
    }
    if (optind < argc)
        return err_set(e, ERR_BAD_FIELD, "unexpected argument '%.64s': see --help", argv[optind]);
    return ERR_OK;
}

/* The default folder for compiled kernels, by the XDG base directory specification. */
static enum err_code default_kernel_cache(struct config *c, struct err *e)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct strb path = {0};
    if (base && *base == '/')
        strb_addf(&path, "%s/arrayd", base);
    else if (home && *home == '/')
        strb_addf(&path, "%s/.cache/arrayd", home);
    if (path.failed)
        return err_oom(e);
    c->kernel_cache = path.data;
    return ERR_OK;
}

static enum err_code resolve_kernel_cache(struct config *c, struct err *e)
{
    if (!c->kernel_cache)
        return default_kernel_cache(c, e);
    if (!strcmp(c->kernel_cache, "none") || !*c->kernel_cache) {
        mem_free(c->kernel_cache);
        c->kernel_cache = NULL;
    }
    return ERR_OK;
}

static enum err_code load(int argc, char *const *argv, struct config *c, enum config_action *action,
                          struct err *e)
{
    TRY(defaults(c, false, e));
    TRY(command_line(argc, argv, c, false, action, e));
    if (c->file && *action == CONFIG_RUN)
        TRY(read_file(c, c->file, e));
    TRY(command_line(argc, argv, c, true, action, e));
    TRY(defaults(c, true, e));
    if (c->private && c->no_keeper)
        return err_set(e, ERR_BAD_FIELD,
                       "private: it is the keeper that does this, and no-keeper "
                       "turns it off");
    if (c->file_slab * c->file_slabs > c->file_memory / 2)
        return err_set(e, ERR_BAD_FIELD,
                       "file-memory: %lld bytes, of which file-slabs of file-slab take more than "
                       "half",
                       (long long)c->file_memory);
    return resolve_kernel_cache(c, e);
}

enum err_code config_load(int argc, char *const *argv, struct config *ret,
                          enum config_action *ret_action, struct err *e)
{
    struct config c = {.each_limit = config_each_limit};
    enum config_action action = CONFIG_RUN;
    enum err_code code = load(argc, argv, &c, &action, e);
    if (code != ERR_OK) {
        config_free(&c);
        return code;
    }
    *ret = c;
    *ret_action = action;
    return ERR_OK;
}
