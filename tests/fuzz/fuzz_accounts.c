/* Accounts files: what is accepted keeps every bound, and stays accepted, with one token more or
 * less, when `arrayd token` changes it. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/store/accounts.h"
#include "tests/fuzz/fuzz.h"

static void in_bounds(const struct accounts *a)
{
    struct err e = ERR_INIT;
    FUZZ_CHECK(a->n_users <= ACCOUNTS_MAX && a->n_tokens <= TOKENS_MAX);
    for (size_t i = 0; i < a->n_users; i++) {
        const struct user *u = &a->users[i];
        FUZZ_CHECK(principal_name_check(u->name, &e) == ERR_OK);
        FUZZ_CHECK(u->weight >= 1 && u->weight <= WEIGHT_MAX);
        FUZZ_CHECK(u->role == ROLE_USER || u->role == ROLE_OPERATOR);
        for (size_t k = 0; k < quota_count; k++) {
            int64_t v;
            memcpy(&v, (const char *)&u->quotas + quota_table[k].offset, sizeof v);
            FUZZ_CHECK(v >= 0);
        }
        for (size_t k = 0; k < i; k++)
            FUZZ_CHECK(strcmp(a->users[k].name, u->name) != 0);
    }
    for (size_t i = 0; i < a->n_tokens; i++)
        FUZZ_CHECK(a->tokens[i].user < a->n_users);
}

/* One token of somebody's more, and all of his less. */
static void changed(const char *text, const struct accounts *a, const char *name)
{
    static const uint8_t hash[TOKEN_HASH_SIZE] = {0xa5, 1, 2, 3};
    struct err e = ERR_INIT;
    struct accounts b;
    struct strb more = {0}, less = {0};
    size_t n = 0;
    for (size_t i = 0; i < a->n_tokens; i++)
        if (!memcmp(a->tokens[i].hash, hash, sizeof hash))
            return;
    if (a->n_tokens >= TOKENS_MAX || a->n_users >= ACCOUNTS_MAX)
        return;
    FUZZ_CHECK(accounts_add(text, name, ROLE_USER, hash, &more, &e) == ERR_OK);
    FUZZ_CHECK(accounts_parse(more.data, more.len, "more", &b, &e) == ERR_OK);
    FUZZ_CHECK(b.n_tokens == a->n_tokens + 1);
    accounts_free(&b);
    FUZZ_CHECK(accounts_remove(more.data, name, "", &less, &n, &e) == ERR_OK && n >= 1);
    FUZZ_CHECK(accounts_parse(less.data ? less.data : "", less.len, "less", &b, &e) == ERR_OK);
    FUZZ_CHECK(b.n_tokens == a->n_tokens + 1 - n);
    accounts_free(&b);
    strb_free(&more);
    strb_free(&less);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct accounts a;
    struct err e = ERR_INIT;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    enum err_code err = accounts_parse((const char *)data, size, "file", &a, &e);
    FUZZ_CHECK(err ? err == ERR_BAD_FIELD && strncmp(e.message, "file: line ", 11) == 0 : true);
    if (!err) {
        in_bounds(&a);
        changed(text, &a, "somebody-new");
        if (a.n_users)
            changed(text, &a, a.users[a.n_users - 1].name);
        accounts_free(&a);
    }
    free(text);
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
