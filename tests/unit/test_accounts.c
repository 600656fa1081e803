/* server/accounts: the file's reader, its mistakes and lines, tokens, changes that keep the rest,
 * random text, allocation failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/store/accounts.h"

/* SHA-256 of "abc", and of nothing. */
#define ABC   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static enum err_code parse(const char *text, struct accounts *ret, struct err *e)
{
    return accounts_parse(text, strlen(text), "file", ret, e);
}

/* What the mistake says, beginning with its place. */
static void refused(const char *text, const char *want)
{
    struct accounts a;
    struct err e = ERR_INIT;
    int64_t live = mem_live();
    assert_int_equal(parse(text, &a, &e), ERR_BAD_FIELD);
    if (strncmp(e.message, want, strlen(want)) != 0)
        fail_msg("'%s' does not begin with '%s'", e.message, want);
    assert_int_equal(mem_live(), live);
}

static void everything_is_read(void **state)
{
    (void)state;
    struct accounts a;
    struct err e = ERR_INIT;
    assert_int_equal(parse("# a comment\r\n"
                           "\t[ann]  ; hers\n"
                           "role=operator\n"
                           "weight =  3 # much\n"
                           "token = " ABC "\n"
                           "token = " EMPTY "\n"
                           "\n"
                           "[b.o-b@x]\n"
                           "device-memory = 1.5GiB\n"
                           "host-memory = 1MiB\n"
                           "arrays = 10\n"
                           "sessions = 2\n"
                           "requests = 1\n"
                           "body = 7",
                           &a, &e),
                     ERR_OK);
    assert_int_equal(a.n_users, 2);
    assert_int_equal(a.n_tokens, 2);
    assert_string_equal(a.users[0].name, "ann");
    assert_int_equal(a.users[0].role, ROLE_OPERATOR);
    assert_int_equal(a.users[0].weight, 3);
    const struct quotas none = {0}, *q = &a.users[1].quotas;
    assert_memory_equal(&a.users[0].quotas, &none, sizeof none);
    assert_string_equal(a.users[1].name, "b.o-b@x");
    assert_int_equal(a.users[1].role, ROLE_USER);
    assert_int_equal(a.users[1].weight, 1);
    assert_int_equal(q->device_memory, 3ll << 29);
    assert_int_equal(q->host_memory, 1 << 20);
    assert_int_equal(q->arrays, 10);
    assert_int_equal(q->sessions, 2);
    assert_int_equal(q->requests, 1);
    assert_int_equal(q->body, 7);
    assert_int_equal(token_find(a.tokens, a.n_tokens, "abc", 3), 0);
    assert_int_equal(token_find(a.tokens, a.n_tokens, "", 0), 1);
    assert_true(token_find(a.tokens, a.n_tokens, "abd", 3) == SIZE_MAX);
    assert_true(token_find(a.tokens, 0, "abc", 3) == SIZE_MAX);
    accounts_free(&a);
    assert_int_equal(parse("", &a, &e), ERR_OK);
    assert_int_equal(a.n_users, 0);
    accounts_free(&a);
}

static void mistakes_are_told_with_their_line(void **state)
{
    (void)state;
    refused("weight = 1\n", "file: line 1: there is a setting before");
    refused("[ann]\n[bob]\n\n[ann]\n", "file: line 4: there is already a section");
    refused("[ann\n", "file: line 1: a section must be");
    refused("[]\n", "file: line 1: the brackets contain no name");
    refused("[ ]\n", "file: line 1: the brackets contain no name");
    refused("[a b]\n", "file: line 1: a name must be");
    refused("[-a]\n", "file: line 1: a name must be");
    refused("[a/b]\n", "file: line 1: a name must be");
    refused("[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n",
            "file: line 1: a name must be");
    refused("[ann]\nwhat\n", "file: line 2: expected");
    refused("[ann]\ncolour = red\n", "file: line 2: unknown setting 'colour'");
    refused("[ann]\ndevice_memory = 1\n", "file: line 2: unknown setting");
    refused("[ann]\nrole = root\n", "file: line 2: a role must be");
    refused("[ann]\nrole = user\nrole = user\n", "file: line 3: this is given twice");
    refused("[ann]\nbody = 1\nbody = 2\n", "file: line 3: this is given twice");
    refused("[ann]\nweight = 0\n", "file: line 2: '0' is not");
    refused("[ann]\nweight = 1001\n", "file: line 2: '1001' is not");
    refused("[ann]\nweight = -1\n", "file: line 2: '-1' is not");
    refused("[ann]\nweight = 1.5\n", "file: line 2: '1.5' is not");
    refused("[ann]\nweight =\n", "file: line 2: '' is not");
    refused("[ann]\narrays = 99999999999999999999\n", "file: line 2: ");
    refused("[ann]\ndevice-memory = 0\n", "file: line 2: '0' is not a size");
    refused("[ann]\ndevice-memory = 1 parsec\n",
            "file: line 2: '1 parsec' is not a size: a number of bytes, or a number with one of");
    refused("[ann]\ndevice-memory = 1e300\n", "file: line 2: ");
    refused("[ann]\ntoken = abc\n", "file: line 2: a token must be given");
    refused("[ann]\ntoken = BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD\n",
            "file: line 2: a token must be given");
    refused("[ann]\ntoken = " ABC "\n[bob]\ntoken = " ABC "\n",
            "file: line 4: this token is already given, in [ann]");
    struct accounts a;
    struct err e = ERR_INIT;
    assert_int_equal(accounts_parse("[ann]\nrole = us\0er\n", 19, "file", &a, &e), ERR_BAD_FIELD);
    assert_string_equal(e.message, "file: line 2: the line contains a NUL character");
}

static void there_is_an_end_to_it(void **state)
{
    (void)state;
    struct strb text = {0};
    struct accounts a;
    struct err e = ERR_INIT;
    for (int i = 0; i < ACCOUNTS_MAX; i++)
        strb_addf(&text, "[u%d]\ntoken = %064x\n", i, i);
    assert_int_equal(parse(text.data, &a, &e), ERR_OK);
    assert_int_equal(a.n_tokens, ACCOUNTS_MAX);
    accounts_free(&a);
    size_t n = text.len;
    strb_add(&text, "[more]\n");
    refused(text.data, "file: line 2001: there are more than 1000 accounts");
    text.data[n] = '\0';
    text.len = n;
    strb_addf(&text, "token = %064x\n", ACCOUNTS_MAX);
    refused(text.data, "file: line 2001: there are more than 1000 tokens");
    strb_free(&text);
}

static void tokens_are_random(void **state)
{
    (void)state;
    char a[TOKEN_SIZE], b[TOKEN_SIZE], digits[2 * TOKEN_HASH_SIZE + 1];
    uint8_t hash[TOKEN_HASH_SIZE];
    bool seen[256] = {0};
    int different = 0;
    for (int i = 0; i < 200; i++) {
        token_make(a);
        token_make(b);
        assert_string_not_equal(a, b);
        assert_int_equal(strlen(a), TOKEN_SIZE - 1);
        assert_memory_equal(a, "arrayd_", 7);
        for (const char *p = a + 7; *p; p++)
            seen[(unsigned char)*p] = true;
    }
    for (int i = 0; i < 256; i++)
        different += seen[i];
    assert_int_equal(different, 64);
    token_hash("abc", 3, hash);
    token_hash_text(hash, digits);
    assert_string_equal(digits, ABC);
}

/* Other tokens, and real ones with another character, in many. */
static void guesses_find_nobody(void **state)
{
    (void)state;
    enum { TOKENS = 20, GUESSES = 200000 };
    char real[TOKENS][TOKEN_SIZE], guess[TOKEN_SIZE];
    struct token tokens[TOKENS];
    int hits = 0;
    for (size_t i = 0; i < TOKENS; i++) {
        token_make(real[i]);
        token_hash(real[i], TOKEN_SIZE - 1, tokens[i].hash);
    }
    for (int i = 0; i < GUESSES; i++) {
        token_make(guess);
        hits += token_find(tokens, TOKENS, guess, TOKEN_SIZE - 1) < TOKENS;
        memcpy(guess, real[i % TOKENS], TOKEN_SIZE);
        guess[i / TOKENS % (TOKEN_SIZE - 1)] ^= (char)(1 << i % 7);
        hits += token_find(tokens, TOKENS, guess, TOKEN_SIZE - 1) < TOKENS;
        hits += token_find(tokens, TOKENS, real[i % TOKENS], (size_t)i % (TOKEN_SIZE - 1)) < TOKENS;
    }
    assert_int_equal(hits, 0);
    for (size_t i = 0; i < TOKENS; i++)
        assert_int_equal(token_find(tokens, TOKENS, real[i], TOKEN_SIZE - 1), i);
}

static void changes_keep_the_rest(void **state)
{
    (void)state;
    struct strb one = {0}, two = {0}, three = {0};
    struct err e = ERR_INIT;
    uint8_t abc[TOKEN_HASH_SIZE], empty[TOKEN_HASH_SIZE];
    size_t n;
    token_hash("abc", 3, abc);
    token_hash("", 0, empty);
    assert_int_equal(accounts_add("", "ann", ROLE_OPERATOR, abc, &one, &e), ERR_OK);
    assert_string_equal(one.data, "[ann]\nrole = operator\ntoken = " ABC "\n");
    assert_int_equal(accounts_add("# x\n [bob] # b\nweight = 2", "bob", ROLE_USER, abc, &two, &e),
                     ERR_OK);
    assert_string_equal(two.data, "# x\n [bob] # b\ntoken = " ABC "\nweight = 2");
    strb_free(&one);
    assert_int_equal(accounts_add(two.data, "ann", ROLE_USER, empty, &one, &e), ERR_OK);
    assert_string_equal(one.data, "# x\n [bob] # b\ntoken = " ABC "\nweight = 2\n\n[ann]\n"
                                  "token = " EMPTY "\n");
    assert_int_equal(accounts_remove(one.data, "bob", "ba7816bf8f01", &three, &n, &e), ERR_OK);
    assert_int_equal(n, 1);
    assert_string_equal(three.data, "# x\n [bob] # b\nweight = 2\n\n[ann]\ntoken = " EMPTY "\n");
    strb_free(&three);
    assert_int_equal(accounts_remove(one.data, "bob", "e3", &three, &n, &e), ERR_OK);
    assert_int_equal(n, 0);
    assert_string_equal(three.data, one.data);
    strb_free(&three);
    strb_free(&two);
    assert_int_equal(accounts_add("[ann]", "ann", ROLE_USER, abc, &two, &e), ERR_OK);
    assert_string_equal(two.data, "[ann]\ntoken = " ABC "\n");
    strb_free(&one);
    strb_free(&two);
}

/* Pieces of files in any order: whatever is taken is sound, and a token can be added to it. */
static void random_text(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[",
                                         "]",
                                         "\n",
                                         "\n",
                                         "\n",
                                         "=",
                                         " = ",
                                         "ann",
                                         "bob",
                                         "[ann]\n",
                                         "[bob]\n",
                                         "#",
                                         ";",
                                         " ",
                                         "\r",
                                         "token",
                                         ABC,
                                         "role",
                                         "user",
                                         "weight",
                                         "3",
                                         "\t",
                                         "body",
                                         "7",
                                         "-1",
                                         "9e9",
                                         "\x80",
                                         "\xff",
                                         "[x]\ntoken = " EMPTY "\n",
                                         "arrays = 1\n"};
    uint64_t seed = 12345;
    int taken = 0;
    for (int run = 0; run < 20000; run++) {
        struct strb text = {0}, more = {0};
        struct accounts a;
        struct err e = ERR_INIT;
        uint8_t hash[TOKEN_HASH_SIZE];
        strb_add(&text, "");
        for (int i = 0; i < run % 12; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            strb_add(&text, pieces[(seed >> 33) % (sizeof pieces / sizeof *pieces)]);
        }
        if (accounts_parse(text.data, text.len, "f", &a, &e) == ERR_OK) {
            taken++;
            for (size_t i = 0; i < a.n_tokens; i++)
                assert_true(a.tokens[i].user < a.n_users);
            for (size_t i = 0; i < a.n_users; i++)
                assert_int_equal(principal_name_check(a.users[i].name, &e), ERR_OK);
            size_t before = a.n_tokens;
            accounts_free(&a);
            token_hash((const char *)&run, sizeof run, hash);
            assert_int_equal(accounts_add(text.data, "ann", ROLE_USER, hash, &more, &e), ERR_OK);
            assert_int_equal(accounts_parse(more.data, more.len, "f", &a, &e), ERR_OK);
            assert_int_equal(a.n_tokens, before + 1);
            accounts_free(&a);
            strb_free(&more);
        } else {
            assert_memory_equal(e.message, "f: line ", 8);
        }
        strb_free(&text);
    }
    assert_true(taken > 1000);
}

static void failing_allocations(void **state)
{
    (void)state;
    static const char text[] = "[ann]\ntoken = " ABC "\n[bob]\ntoken = " EMPTY "\n";
    int64_t live = mem_live();
    enum err_code r;
    int64_t nth = 1;
    do {
        struct accounts a;
        struct err e = ERR_INIT;
        mem_fail_after(nth++, false);
        r = parse(text, &a, &e);
        mem_fail_after(0, false);
        if (r == ERR_OK)
            accounts_free(&a);
        else
            assert_int_equal(r, ERR_OUT_OF_MEMORY);
        assert_int_equal(mem_live(), live);
    } while (r != ERR_OK && nth < 100);
    assert_true(nth > 4 && nth < 100);
}

static void files(void **state)
{
    (void)state;
    struct accounts a;
    struct err e = ERR_INIT;
    assert_int_equal(accounts_read("/nonexistent/accounts", &a, &e), ERR_BAD_FIELD);
    assert_non_null(strstr(e.message, "No such file"));
    assert_int_equal(accounts_read("/tmp", &a, &e), ERR_BAD_FIELD);
    assert_int_equal(accounts_read("/dev/zero", &a, &e), ERR_BAD_FIELD);
    assert_non_null(strstr(e.message, "not a regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_read),
        cmocka_unit_test(mistakes_are_told_with_their_line),
        cmocka_unit_test(there_is_an_end_to_it),
        cmocka_unit_test(tokens_are_random),
        cmocka_unit_test(guesses_find_nobody),
        cmocka_unit_test(changes_keep_the_rest),
        cmocka_unit_test(random_text),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
