/* The accounts file: who may use the daemon, with which role, quotas and tokens.
 *
 * Text, one [section] per principal with lines of 'name = value'; '#' and ';' begin comments.
 *
 *     [ann]
 *     role = operator          # or user, the default
 *     weight = 3               # ann's share of the device's time, relative to other users
 *     device-memory = 8GiB     # quotas; without one only the daemon's own limit applies
 *     token = 9f86d0…          # SHA-256 of a token, in hexadecimal; several may be given
 *
 * auth.c reads it at the start and on SIGHUP, token_cmd.c (`arrayd token`, `arrayd account`)
 * changes it. The caller owns everything here; there is no shared state. */
#ifndef ARRAYD_SERVER_ACCOUNTS_H
#define ARRAYD_SERVER_ACCOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "server/server.h"

#define TOKEN_SIZE      40 /* "arrayd_" and 32 characters, NUL */
#define TOKEN_HASH_SIZE 32
#define TOKEN_ID_LEN    12      /* digits of the hash that identify a token */
#define LOCAL_USER      "local" /* without accounts there is only this one */
#define ACCOUNTS_MAX    1000
#define TOKENS_MAX      1000 /* of all accounts */
#define WEIGHT_MAX      1000

enum role { ROLE_USER, ROLE_OPERATOR };
const char *role_name(enum role role);

/* What a principal may have at once. 0: only the daemon's own limit applies. */
struct quotas {
    int64_t device_memory;  /* bytes of arrays and of work on them */
    int64_t host_memory;    /* bytes of arrays that were moved to host memory */
    int64_t request_memory; /* host memory that requests, jobs and functions take, bytes */
    int64_t arrays;         /* handles */
    int64_t sessions;       /* besides the default one */
    int64_t requests;       /* in flight */
    int64_t connections;    /* each counts for the principal of its last request */
    int64_t body;           /* bytes of a request's body */
};

/* The quotas by name ("device_memory"), for lists of them. */
struct quota_info {
    const char *name;
    size_t offset; /* in struct quotas, an int64_t */
    bool size;     /* bytes rather than a number */
};
extern const struct quota_info quota_table[];
extern const size_t quota_count;

struct user {
    char name[PRINCIPAL_SIZE];
    enum role role;
    uint32_t weight; /* 1 … WEIGHT_MAX */
    struct quotas quotas;
};

/* What an operator has changed for the running daemon, setting by setting: the weight, and the
 * quotas in the order of quota_table. A change is in force as long as the file says what it said
 * then. */
#define SETTINGS 9
struct setting_change {
    bool set;
    int64_t value; /* 0: no quota */
    int64_t file;  /* the accounts file's, likewise */
};
struct setting_changes {
    struct setting_change of[SETTINGS];
};
const char *setting_name(size_t i); /* "weight", "device_memory" */
int64_t user_setting(const struct user *u, size_t i);
int64_t setting_most(size_t i);
/* Drops the changes of what the file says otherwise by now, whether there were any, and makes *u
 * what is in force. */
bool changes_apply(struct setting_changes *c, struct user *u);
bool changes_any(const struct setting_changes *c);

struct token {
    uint8_t hash[TOKEN_HASH_SIZE];
    size_t user; /* index */
};

struct accounts {
    struct user *users;
    size_t n_users;
    struct token *tokens;
    size_t n_tokens;
};

/* ERR_BAD_FIELD with the line of the first mistake, after `name`, the text's name. */
enum err_code accounts_parse(const char *text, size_t n, const char *name, struct accounts *ret,
                             struct err *e) must_check;
/* The same for a file; also ERR_BAD_FIELD if it cannot be read or anybody may write to it. */
enum err_code accounts_read(const char *path, struct accounts *ret, struct err *e) must_check;
void accounts_free(struct accounts *a);
/* Before anything that a process left is restored: whether its owner's account may be missing.
 * ERR_BAD_FIELD: no account is there at all (`any`) or configured, though this belongs to one,
 * which is a mistake: an editor may leave the file empty for a moment. */
enum err_code accounts_check_left(bool configured, bool any, const char *owner,
                                  struct err *e) must_check;

/* The text of a file, up to a size that no accounts need. ERR_BAD_FIELD. */
enum err_code accounts_text(const char *path, struct strb *ret, struct err *e) must_check;

/* ERR_BAD_FIELD unless 1 to 64 of A-Z a-z 0-9 _ - . @, of which the first is a letter, digit or _.
 */
enum err_code principal_name_check(const char *name, struct err *e) must_check;
enum err_code role_parse(const char *text, enum role *ret, struct err *e) must_check;

/* A new token, of 192 random bits. */
void token_make(char ret[TOKEN_SIZE]);
/* n random characters of A-Z a-z 0-9 - _, six bits each, and NUL. */
void token_digits(char *ret, size_t n);
void token_hash(const char *token, size_t n, uint8_t ret[TOKEN_HASH_SIZE]);
void token_hash_text(const uint8_t hash[TOKEN_HASH_SIZE], char ret[2 * TOKEN_HASH_SIZE + 1]);
/* Parses that text of n characters; false if it is malformed. */
bool token_hash_parse(const char *text, size_t n, uint8_t ret[TOKEN_HASH_SIZE]);
/* Which of the tokens this is; SIZE_MAX: none. The time depends neither on which one it is nor on
 * how much of it is right. */
size_t token_find(const struct token *tokens, size_t n, const char *token, size_t len);

/* The text with another token for user `name`; a new user is added at the end, with the role. The
 * text parses before and afterwards. */
enum err_code accounts_add(const char *text, const char *name, enum role role,
                           const uint8_t hash[TOKEN_HASH_SIZE], struct strb *ret,
                           struct err *e) must_check;
/* The text without the tokens of `name` whose hash begins with `id` ("": all of them), and their
 * number. */
enum err_code accounts_remove(const char *text, const char *name, const char *id, struct strb *ret,
                              size_t *ret_n, struct err *e) must_check;
/* The text without the section of `name`; comments before the next section stay. */
enum err_code accounts_end(const char *text, const char *name, struct strb *ret,
                           struct err *e) must_check;

#endif
