/* `arrayd token`: makes and revokes tokens; `arrayd account`: removes accounts.
 *
 * A token is printed once, alone on standard output, and only its hash is stored. The file is
 * replaced in one step (a new one beside it, fsync, rename), so the daemon, or a restart after a
 * crash, finds either the old one or the new one. A lock on the folder keeps two such commands from
 * losing each other's changes. A newly created file is readable by its owner alone; a replacement
 * keeps the old file's owner and readers, since the daemon may run as another user than this
 * command. The daemon reads the file again on SIGHUP. */
#include "server/commands/token_cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/config/config.h"
#include "server/store/accounts.h"

enum { DONE = 0, FAILED = 1, USAGE = 2 };

static const char usage[] =
    "usage: arrayd token add NAME [--role user|operator]\n"
    "       arrayd token list\n"
    "       arrayd token remove NAME [ID]\n"
    "\n"
    "Each needs --accounts FILE, or the --config FILE of the daemon.\n"
    "\n"
    "add     creates a token for NAME, and the account if it does not exist, and prints the token "
    "once\n"
    "list    prints names, roles, and the ids of tokens\n"
    "remove  removes the token with this ID, or all of NAME's; the account stays, with all its\n"
    "        arrays: 'arrayd account remove NAME' removes it\n"
    "\n"
    "A running daemon reloads the file on SIGHUP.\n";

static const char account_usage[] =
    "usage: arrayd account remove NAME\n"
    "\n"
    "Needs --accounts FILE, or the --config FILE of the daemon.\n"
    "\n"
    "remove  removes NAME's section from the file, which deletes the account, its tokens and\n"
    "        everything it owns, arrays included\n"
    "\n"
    "A running daemon reloads the file on SIGHUP.\n";

struct command {
    char *path; /* the accounts file, links resolved */
    char folder[PATH_MAX];
    const char *name, *id;
    enum role role;
    bool role_given;
    int first;        /* index of the first argument that is no option */
    struct strb text; /* the file's contents */
    struct accounts accounts;
    bool exists;
    struct stat st; /* valid if exists */
};

static enum err_code sys_error(const struct command *c, struct err *e)
{
    return err_set(e, ERR_BAD_FIELD, "%s: %s", c->path, strerror(errno));
}

/* --- the file --- */

/* The folder, locked until the process ends. */
static enum err_code lock_folder(struct command *c, struct err *e)
{
    const char *slash = strrchr(c->path, '/');
    size_t n = !slash ? 0 : slash == c->path ? 1 : (size_t)(slash - c->path);
    if (n >= sizeof c->folder)
        return err_set(e, ERR_BAD_FIELD, "the path is too long");
    memcpy(c->folder, n ? c->path : ".", n ? n : 1);
    c->folder[n ? n : 1] = '\0';
    int fd = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", c->folder, strerror(errno));
    if (flock(fd, LOCK_EX) != 0) { /* kept open: closing it would release the lock */
        close(fd);
        return err_set(e, ERR_BAD_FIELD, "%s cannot be locked: %s", c->folder, strerror(errno));
    }
    return ERR_OK;
}

static enum err_code read_accounts(struct command *c, bool must_exist, struct err *e)
{
    c->exists = stat(c->path, &c->st) == 0;
    if (!c->exists && (must_exist || errno != ENOENT))
        return sys_error(c, e);
    enum err_code code = c->exists ? accounts_text(c->path, &c->text, e) : ERR_OK;
    if (code == ERR_OK && !c->text.data)
        strb_addn(&c->text, "", 0);
    if (code != ERR_OK || c->text.failed)
        return code != ERR_OK ? code : err_oom(e);
    return accounts_parse(c->text.data, c->text.len, c->path, &c->accounts, e);
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno != EINTR)
            return false;
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        }
    }
    return true;
}

/* Whoever could read the old file can read the new one: mainly the daemon. */
static bool keep_access(int fd, const struct stat *old)
{
    bool ours = old->st_uid == geteuid() && old->st_gid == getegid();
    return (ours || fchown(fd, old->st_uid, old->st_gid) == 0) &&
           fchmod(fd, (old->st_mode & 0044) | 0600) == 0;
}

static enum err_code write_accounts(struct command *c, const struct strb *text, struct err *e)
{
    struct accounts check;
    TRY(accounts_parse(text->data, text->len, c->path, &check, e));
    accounts_free(&check);
    _cleanup_strb_ struct strb fresh = {0};
    strb_addf(&fresh, "%s.XXXXXX", c->path);
    if (fresh.failed)
        return err_oom(e);
    int fd = mkostemp(fresh.data, O_CLOEXEC); /* readable by its owner alone: 0600 */
    if (fd < 0)
        return sys_error(c, e);
    bool ok = write_all(fd, text->data, text->len) && (!c->exists || keep_access(fd, &c->st)) &&
              fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && rename(fresh.data, c->path) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok) {
        unlink(fresh.data);
        errno = why;
        return sys_error(c, e);
    }
    int folder = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return ERR_OK;
}

/* --- the commands --- */

static const struct user *find_user(const struct command *c)
{
    for (size_t i = 0; i < c->accounts.n_users; i++)
        if (!strcmp(c->accounts.users[i].name, c->name))
            return &c->accounts.users[i];
    return NULL;
}

static enum err_code add(struct command *c, struct err *e)
{
    TRY(principal_name_check(c->name, e));
    TRY(lock_folder(c, e));
    TRY(read_accounts(c, false, e));
    const struct user *u = find_user(c);
    if (u && c->role_given && u->role != c->role)
        return err_set(e, ERR_BAD_FIELD,
                       "'%s' already exists with the role %s: change the role in %s", c->name,
                       role_name(u->role), c->path);
    char token[TOKEN_SIZE];
    uint8_t hash[TOKEN_HASH_SIZE];
    token_make(token);
    token_hash(token, strlen(token), hash);
    _cleanup_strb_ struct strb text = {0};
    enum err_code code = accounts_add(c->text.data, c->name, c->role, hash, &text, e);
    if (code == ERR_OK)
        code = write_accounts(c, &text, e);
    if (code == ERR_OK)
        puts(token);
    explicit_bzero(token, sizeof token);
    return code;
}

static enum err_code list(struct command *c, struct err *e)
{
    TRY(read_accounts(c, true, e));
    for (size_t i = 0; i < c->accounts.n_users; i++) {
        const struct user *u = &c->accounts.users[i];
        printf("%s %s", u->name, role_name(u->role));
        for (size_t k = 0; k < c->accounts.n_tokens; k++) {
            char digits[2 * TOKEN_HASH_SIZE + 1];
            if (c->accounts.tokens[k].user != i)
                continue;
            token_hash_text(c->accounts.tokens[k].hash, digits);
            printf(" %.*s", TOKEN_ID_LEN, digits);
        }
        puts("");
    }
    return ERR_OK;
}

/* The number of tokens when the file was read. */
static size_t tokens_of(const struct command *c, const struct user *u)
{
    size_t n = 0;
    for (size_t k = 0; k < c->accounts.n_tokens; k++)
        n += &c->accounts.users[c->accounts.tokens[k].user] == u;
    return n;
}

static enum err_code remove_token(struct command *c, struct err *e)
{
    const char *id = c->id ? c->id : "";
    if (c->id && strlen(c->id) < TOKEN_ID_LEN)
        return err_set(e, ERR_BAD_FIELD, "an id must have %d digits: see 'arrayd token list'",
                       TOKEN_ID_LEN);
    TRY(lock_folder(c, e));
    TRY(read_accounts(c, true, e));
    if (!find_user(c))
        return err_set(e, ERR_NOT_FOUND, "%s: there is no account '%s'", c->path, c->name);
    _cleanup_strb_ struct strb text = {0};
    size_t n;
    TRY(accounts_remove(c->text.data, c->name, id, &text, &n, e));
    if (n == 0)
        return err_set(e, ERR_NOT_FOUND, "%s: '%s' has no %s", c->path, c->name,
                       c->id ? "token with this id" : "tokens");
    TRY(write_accounts(c, &text, e));
    if (tokens_of(c, find_user(c)) == n)
        fprintf(stderr,
                "'%s' has no tokens left, but the account and everything it owns remain: use "
                "'arrayd account remove %s' to remove it\n",
                c->name, c->name);
    return ERR_OK;
}

static enum err_code remove_account(struct command *c, struct err *e)
{
    TRY(lock_folder(c, e));
    TRY(read_accounts(c, true, e));
    if (!find_user(c))
        return err_set(e, ERR_NOT_FOUND, "%s: there is no account '%s'", c->path, c->name);
    _cleanup_strb_ struct strb text = {0};
    TRY(accounts_end(c->text.data, c->name, &text, e));
    TRY(write_accounts(c, &text, e));
    if (c->accounts.n_users == 1)
        fputs("that was the last account: on SIGHUP a running daemon keeps the accounts it has, so "
              "stop it\n",
              stderr);
    return ERR_OK;
}

/* --- the command line --- */

/* The path of the accounts file, as the daemon with these options would find it. */
static enum err_code find_path(struct command *c, char *accounts, char *config, struct err *e)
{
    char *argv[] = {"arrayd",
                    config ? "--config" : "--accounts",
                    config ? config : accounts,
                    accounts ? "--accounts" : NULL,
                    accounts,
                    NULL};
    int argc = config ? accounts ? 5 : 3 : accounts ? 3 : 1;
    struct config cfg;
    enum config_action action;
    enum err_code code = config_load(argc, argv, &cfg, &action, e);
    if (code != ERR_OK)
        return code;
    char *real = cfg.accounts ? realpath(cfg.accounts, NULL) : NULL; /* a link stays a link */
    c->path = cfg.accounts ? mem_strdup(real ? real : cfg.accounts) : NULL;
    if (!cfg.accounts)
        code = err_set(e, ERR_BAD_FIELD,
                       "the accounts file is missing: give --accounts FILE or --config FILE");
    else if (!c->path)
        code = err_oom(e);
    (free)(real); /* allocated by libc */
    config_free(&cfg);
    return code;
}

static enum err_code command_line(int argc, char *const *argv, struct command *c, struct err *e)
{
    static const struct option options[] = {{"accounts", required_argument, NULL, 'a'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"role", required_argument, NULL, 'r'},
                                            {0}};
    char *accounts = NULL, *config = NULL;
    optind = 0;
    opterr = 0;
    for (;;) {
        int k = getopt_long(argc, argv, ":", options, NULL);
        if (k == -1)
            break;
        if (k == 'a') {
            accounts = optarg;
        } else if (k == 'c') {
            config = optarg;
        } else if (k == 'r') {
            c->role_given = true;
            TRY(role_parse(optarg, &c->role, e));
        } else {
            return err_set(e, ERR_BAD_FIELD, "unknown option, or an option without its value");
        }
    }
    c->first = optind; /* parsing the other command line will change it */
    return find_path(c, accounts, config, e);
}

struct verb {
    const char *name; /* NULL behind the last */
    int least, most;  /* arguments */
    enum err_code (*run)(struct command *c, struct err *e);
};

static int run(int argc, char **argv, const struct verb *verbs, const char *help)
{
    const struct verb *v = verbs;
    while (v->name && (argc < 2 || strcmp(argv[1], v->name) != 0))
        v++;
    if (!v->name) {
        bool asked = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help"));
        fputs(help, asked ? stdout : stderr);
        return asked ? DONE : USAGE;
    }
    struct command c = {0};
    struct err e = ERR_INIT;
    int status = DONE;
    if (command_line(argc - 1, argv + 1, &c, &e) != ERR_OK) {
        status = USAGE;
    } else if (argc - 1 - c.first < v->least || argc - 1 - c.first > v->most) {
        fputs(help, stderr);
        status = USAGE;
    } else {
        char *const *arg = argv + 1 + c.first;
        c.name = v->most > 0 ? arg[0] : NULL;
        c.id = c.name ? arg[1] : NULL; /* or the NULL after the last */
        if (v->run(&c, &e) != ERR_OK)
            status = FAILED;
    }
    if (e.code != ERR_OK)
        fprintf(stderr, "arrayd %s: %s\n", argv[0], e.message);
    strb_free(&c.text);
    accounts_free(&c.accounts);
    mem_free(c.path);
    return status;
}

int token_main(int argc, char **argv)
{
    static const struct verb verbs[] = {
        {"add", 1, 1, add}, {"list", 0, 0, list}, {"remove", 1, 2, remove_token}, {0}};
    return run(argc, argv, verbs, usage);
}

int account_main(int argc, char **argv)
{
    static const struct verb verbs[] = {{"remove", 1, 1, remove_account}, {0}};
    return run(argc, argv, verbs, account_usage);
}
