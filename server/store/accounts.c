/* The accounts file, read and rewritten.
 *
 * Every mistake is reported with its line, because after one the old accounts stay in force. The
 * line parser (ini.c) that reads the file also serves the commands that add and remove tokens, so
 * everything else an operator has written in the file stays as it is.
 *
 * Tokens are kept as plain SHA-256: they are 192 bits from the kernel's generator, not chosen by a
 * person, so there is no dictionary to try, and a slow, salted hash would protect nothing but cost
 * every request. A presented token is hashed and its hash compared with every known one, each in
 * constant time: the time reveals neither how much of a token was right nor whose it is. */
#include "server/store/accounts.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/ini.h"
#include "compute/base/mem.h"

#define QUOTA_SIZE_MAX  9007199254740992
#define QUOTA_COUNT_MAX 1000000000

const struct quota_info quota_table[] = {
    {"device_memory", offsetof(struct quotas, device_memory), true},
    {"host_memory", offsetof(struct quotas, host_memory), true},
    {"request_memory", offsetof(struct quotas, request_memory), true},
    {"arrays", offsetof(struct quotas, arrays), false},
    {"sessions", offsetof(struct quotas, sessions), false},
    {"requests", offsetof(struct quotas, requests), false},
    {"connections", offsetof(struct quotas, connections), false},
    {"body", offsetof(struct quotas, body), true},
};
const size_t quota_count = sizeof quota_table / sizeof *quota_table;

const char *role_name(enum role role)
{
    return role == ROLE_OPERATOR ? "operator" : "user";
}

/* --- settings that are changed --- */

static_assert(sizeof quota_table / sizeof *quota_table + 1 == SETTINGS, "a weight, and quotas");

const char *setting_name(size_t i)
{
    return i ? quota_table[i - 1].name : "weight";
}

int64_t user_setting(const struct user *u, size_t i)
{
    return i ? *(const int64_t *)((const char *)&u->quotas + quota_table[i - 1].offset) : u->weight;
}

int64_t setting_most(size_t i)
{
    return !i ? WEIGHT_MAX : quota_table[i - 1].size ? QUOTA_SIZE_MAX : QUOTA_COUNT_MAX;
}

bool changes_apply(struct setting_changes *c, struct user *u)
{
    bool dropped = false;
    for (size_t i = 0; i < SETTINGS; i++) {
        struct setting_change *x = &c->of[i];
        if (!x->set)
            continue;
        if (x->file != user_setting(u, i)) {
            x->set = false;
            dropped = true;
        } else if (i) {
            *(int64_t *)((char *)&u->quotas + quota_table[i - 1].offset) = x->value;
        } else {
            u->weight = (uint32_t)x->value;
        }
    }
    return dropped;
}

bool changes_any(const struct setting_changes *c)
{
    bool any = false;
    for (size_t i = 0; i < SETTINGS; i++)
        any |= c->of[i].set;
    return any;
}

/* --- tokens --- */

void token_digits(char *ret, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t got = 0; got < n;) {
        ssize_t k = getrandom(ret + got, n - got, 0);
        if (k > 0) /* fails only when a signal comes before the kernel's pool is ready */
            got += (size_t)k;
    }
    for (size_t i = 0; i < n; i++)
        ret[i] = digit[ret[i] & 63];
    ret[n] = '\0';
}

void token_make(char ret[TOKEN_SIZE])
{
    memcpy(ret, "arrayd_", 7);
    token_digits(ret + 7, TOKEN_SIZE - 8);
}

void token_hash(const char *token, size_t n, uint8_t ret[TOKEN_HASH_SIZE])
{
    struct sha256_ctx h;
    sha256_init(&h);
    sha256_update(&h, n, (const uint8_t *)token);
    sha256_digest(&h, TOKEN_HASH_SIZE, ret);
}

void token_hash_text(const uint8_t hash[TOKEN_HASH_SIZE], char ret[2 * TOKEN_HASH_SIZE + 1])
{
    for (int i = 0; i < TOKEN_HASH_SIZE; i++)
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

size_t token_find(const struct token *tokens, size_t n, const char *token, size_t len)
{
    uint8_t hash[TOKEN_HASH_SIZE];
    size_t found = SIZE_MAX;
    token_hash(token, len, hash);
    for (size_t i = 0; i < n; i++) {
        size_t is = (size_t)-memeql_sec(tokens[i].hash, hash, sizeof hash);
        found = (found & ~is) | (i & is);
    }
    return found;
}

/* --- values --- */

enum err_code principal_name_check(const char *name, struct err *e)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strlen(name);
    if (n == 0 || n >= PRINCIPAL_SIZE || !strchr(letters, name[0]) ||
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.@") != n)
        return err_set(
            e, ERR_BAD_FIELD,
            "a name must be a letter, digit or _, followed by up to %d of these or - . @",
            PRINCIPAL_SIZE - 2);
    return ERR_OK;
}

enum err_code role_parse(const char *text, enum role *ret, struct err *e)
{
    for (enum role r = ROLE_USER; r <= ROLE_OPERATOR; r++)
        if (!strcmp(text, role_name(r))) {
            *ret = r;
            return ERR_OK;
        }
    return err_set(e, ERR_BAD_FIELD, "a role must be 'user' or 'operator', not '%.40s'", text);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool token_hash_parse(const char *text, size_t n, uint8_t ret[TOKEN_HASH_SIZE])
{
    if (n != 2 * TOKEN_HASH_SIZE)
        return false;
    for (size_t i = 0; i < TOKEN_HASH_SIZE; i++) {
        int hi = hex(text[2 * i]), lo = hex(text[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        ret[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

static enum err_code parse_count(const char *text, int64_t most, int64_t *ret, struct err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v < 1 || v > most)
        return err_set(e, ERR_BAD_FIELD, "'%.40s' is not a number from 1 to %lld", text,
                       (long long)most);
    *ret = v;
    return ERR_OK;
}

static enum err_code parse_bytes(const char *text, int64_t *ret, struct err *e)
{
    double v;
    if (!ini_size(text, &v) || !(v >= 1 && v <= QUOTA_SIZE_MAX))
        return err_set(e, ERR_BAD_FIELD, "'%.40s' is not a size: " INI_SIZE_FORM, text);
    *ret = (int64_t)v;
    return ERR_OK;
}

/* --- parsing --- */

struct parse {
    struct accounts a;
    uint32_t seen; /* by the current user: role, weight, quotas from the third bit on */
};

static enum err_code once(struct parse *p, unsigned bit, struct err *e)
{
    if (p->seen & (1u << bit))
        return err_set(e, ERR_BAD_FIELD, "this is given twice");
    p->seen |= 1u << bit;
    return ERR_OK;
}

static enum err_code add_user(struct parse *p, struct ini_part name, struct err *e)
{
    struct user u = {.role = ROLE_USER, .weight = 1};
    snprintf(u.name, sizeof u.name, "%.*s", (int)name.n, name.at);
    TRY(principal_name_check(name.n < sizeof u.name ? u.name : "", e));
    for (size_t i = 0; i < p->a.n_users; i++)
        if (!strcmp(p->a.users[i].name, u.name))
            return err_set(e, ERR_BAD_FIELD, "there is already a section [%s]", u.name);
    if (p->a.n_users == ACCOUNTS_MAX)
        return err_set(e, ERR_BAD_FIELD, "there are more than %d accounts", ACCOUNTS_MAX);
    struct user *users = mem_reallocarray(p->a.users, p->a.n_users + 1, sizeof *users);
    if (!users)
        return err_oom(e);
    p->a.users = users;
    users[p->a.n_users++] = u;
    p->seen = 0;
    return ERR_OK;
}

static enum err_code add_token(struct parse *p, struct ini_part value, struct err *e)
{
    struct token t = {.user = p->a.n_users - 1};
    if (!token_hash_parse(value.at, value.n, t.hash))
        return err_set(e, ERR_BAD_FIELD,
                       "a token must be given by its SHA-256, as %d lower-case hexadecimal digits: "
                       "see 'arrayd token add'",
                       2 * TOKEN_HASH_SIZE);
    for (size_t i = 0; i < p->a.n_tokens; i++)
        if (!memcmp(p->a.tokens[i].hash, t.hash, sizeof t.hash))
            return err_set(e, ERR_BAD_FIELD, "this token is already given, in [%s]",
                           p->a.users[p->a.tokens[i].user].name);
    if (p->a.n_tokens == TOKENS_MAX)
        return err_set(e, ERR_BAD_FIELD, "there are more than %d tokens", TOKENS_MAX);
    struct token *tokens = mem_reallocarray(p->a.tokens, p->a.n_tokens + 1, sizeof *tokens);
    if (!tokens)
        return err_oom(e);
    p->a.tokens = tokens;
    tokens[p->a.n_tokens++] = t;
    return ERR_OK;
}

/* "device-memory" for device_memory. */
static bool is_quota(struct ini_part p, const char *name)
{
    if (p.n != strlen(name))
        return false;
    for (size_t i = 0; i < p.n; i++)
        if (p.at[i] != (name[i] == '_' ? '-' : name[i]))
            return false;
    return true;
}

static enum err_code set_value(struct parse *p, const struct ini_line *l, struct err *e)
{
    if (!p->a.n_users)
        return err_set(e, ERR_BAD_FIELD, "there is a setting before the first [name]");
    struct user *u = &p->a.users[p->a.n_users - 1];
    char text[64];
    int64_t weight;
    if (ini_is(l->name, "token"))
        return add_token(p, l->value, e);
    snprintf(text, sizeof text, "%.*s", (int)l->value.n, l->value.at);
    if (l->value.n >= sizeof text)
        return err_set(e, ERR_BAD_FIELD, "a value of %zu characters is too long", l->value.n);
    if (ini_is(l->name, "role")) {
        TRY(once(p, 0, e));
        return role_parse(text, &u->role, e);
    }
    if (ini_is(l->name, "weight")) {
        TRY(once(p, 1, e));
        TRY(parse_count(text, WEIGHT_MAX, &weight, e));
        u->weight = (uint32_t)weight;
        return ERR_OK;
    }
    for (unsigned i = 0; i < quota_count; i++)
        if (is_quota(l->name, quota_table[i].name)) {
            int64_t *at = (int64_t *)((char *)&u->quotas + quota_table[i].offset);
            TRY(once(p, 2 + i, e));
            return quota_table[i].size ? parse_bytes(text, at, e)
                                       : parse_count(text, QUOTA_COUNT_MAX, at, e);
        }
    return err_set(e, ERR_BAD_FIELD, "unknown setting '%.*s'",
                   (int)(l->name.n > 40 ? 40 : l->name.n), l->name.at);
}

enum err_code accounts_parse(const char *text, size_t n, const char *name, struct accounts *ret,
                             struct err *e)
{
    struct parse p = {0};
    struct ini_line l = {.at = text};
    struct err why = ERR_INIT;
    enum err_code code = ERR_OK;
    while (code == ERR_OK && ini_next(text + n, &l)) {
        if (l.kind == INI_MISTAKE)
            code = err_set(&why, ERR_BAD_FIELD, "%s", l.mistake);
        else if (l.kind == INI_SECTION)
            code = add_user(&p, l.name, &why);
        else if (l.kind == INI_VALUE)
            code = set_value(&p, &l, &why);
    }
    if (code != ERR_OK) {
        accounts_free(&p.a);
        return code == ERR_BAD_FIELD
                   ? err_set(e, code, "%s: line %zu: %s", name, l.number, why.message)
                   : err_oom(e);
    }
    *ret = p.a;
    return ERR_OK;
}

void accounts_free(struct accounts *a)
{
    mem_free(a->users);
    mem_free(a->tokens);
    *a = (struct accounts){0};
}

/* --- files --- */

/* Whether accounts may be read from the file. */
static enum err_code check_file(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* it is read again on SIGHUP */
        return err_set(e, ERR_BAD_FIELD, "%s: this is not a regular file", path);
    if (st.st_mode & S_IWOTH)
        return err_set(e, ERR_BAD_FIELD,
                       "%s: any user may write to this file and so create an account: chmod o-w",
                       path);
    return ERR_OK;
}

enum err_code accounts_text(const char *path, struct strb *ret, struct err *e)
{
    struct strb text = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno));
    enum err_code code = check_file(fd, path, e);
    if (code == ERR_OK)
        code = ini_read(fd, path, &text, e);
    close(fd);
    if (code != ERR_OK)
        strb_free(&text);
    else
        *ret = text;
    return code;
}

enum err_code accounts_read(const char *path, struct accounts *ret, struct err *e)
{
    _cleanup_strb_ struct strb text = {0};
    TRY(accounts_text(path, &text, e));
    return accounts_parse(text.data ? text.data : "", text.len, path, ret, e);
}

enum err_code accounts_check_left(bool configured, bool any, const char *owner, struct err *e)
{
    if (configured ? any : !strcmp(owner, LOCAL_USER))
        return ERR_OK;
    return err_set(
        e, ERR_BAD_FIELD, "%s, but there are sessions and arrays of '%.80s': they would be deleted",
        configured ? "the accounts file has no account" : "no accounts are configured", owner);
}

/* --- changes --- */

enum err_code accounts_add(const char *text, const char *name, enum role role,
                           const uint8_t hash[TOKEN_HASH_SIZE], struct strb *ret, struct err *e)
{
    const char *end = text + strlen(text);
    char digits[2 * TOKEN_HASH_SIZE + 1];
    struct ini_line l = {.at = text};
    struct strb out = {0};
    bool found = false;
    token_hash_text(hash, digits);
    while (ini_next(end, &l)) {
        bool begin = l.kind == INI_SECTION && ini_is(l.name, name);
        strb_addn(&out, l.at, l.n);
        if (begin) { /* the token goes on the next line */
            found = true;
            strb_addf(&out, "%stoken = %s\n", l.at[l.n - 1] == '\n' ? "" : "\n", digits);
        }
    }
    if (!found) {
        if (out.len && out.data[out.len - 1] != '\n')
            strb_addc(&out, '\n');
        strb_addf(&out, "%s[%s]\n", out.len ? "\n" : "", name);
        if (role != ROLE_USER)
            strb_addf(&out, "role = %s\n", role_name(role));
        strb_addf(&out, "token = %s\n", digits);
    }
    if (out.failed) {
        strb_free(&out);
        return err_oom(e);
    }
    *ret = out;
    return ERR_OK;
}

enum err_code accounts_remove(const char *text, const char *name, const char *id, struct strb *ret,
                              size_t *ret_n, struct err *e)
{
    const char *end = text + strlen(text);
    struct ini_line l = {.at = text};
    struct strb out = {0};
    size_t n = 0, id_len = strlen(id);
    bool inside = false;
    while (ini_next(end, &l)) {
        if (l.kind == INI_SECTION)
            inside = ini_is(l.name, name);
        if (inside && l.kind == INI_VALUE && ini_is(l.name, "token") && l.value.n >= id_len &&
            !memcmp(l.value.at, id, id_len))
            n++;
        else
            strb_addn(&out, l.at, l.n);
    }
    if (out.failed) {
        strb_free(&out);
        return err_oom(e);
    }
    *ret = out;
    *ret_n = n;
    return ERR_OK;
}

enum err_code accounts_end(const char *text, const char *name, struct strb *ret, struct err *e)
{
    const char *end = text + strlen(text);
    struct ini_line l = {.at = text};
    struct strb out = {0};
    const char *remarks = NULL; /* in its section, after its last value */
    bool inside = false;
    while (ini_next(end, &l)) {
        if (l.kind == INI_SECTION) {
            inside = ini_is(l.name, name);
            if (!inside && remarks)
                strb_addn(&out, remarks, (size_t)(l.at - remarks));
            remarks = NULL;
        }
        if (!inside)
            strb_addn(&out, l.at, l.n);
        else if (l.kind == INI_SECTION || l.kind == INI_VALUE)
            remarks = NULL;
        else if (!remarks)
            remarks = l.at;
    }
    if (out.failed) {
        strb_free(&out);
        return err_oom(e);
    }
    *ret = out;
    return ERR_OK;
}
