/* server/login/logins: the table of logins and links, without a daemon around it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/login/logins.h"
#include "server/store/auth.h"

static char gone[ID_SIZE];
static struct principal ann = {.name = "ann"}, bob = {.name = "bob"};

static struct login *add(struct logins *t, struct principal *who, bool link, double seconds,
                         char *key)
{
    const struct login_terms terms = {.who = who, .link = link, .whole = link};
    struct login *l = NULL;
    struct err e = ERR_INIT;
    const enum err_code code = logins_add(t, &terms, seconds, key, &l, gone, &e);
    assert_int_equal(code, l ? ERR_OK : ERR_QUOTA);
    login_unref(l); /* the table has it */
    return l;
}

static bool is_there(struct logins *t, const char *key)
{
    struct login *l = logins_find(t, key, LOGIN_KEY_LEN);
    login_unref(l);
    return l;
}

static void keys(void **state)
{
    (void)state;
    struct logins *t = logins_new(10, 10), *other = logins_new(10, 10);
    char key[LOGIN_KEY_LEN + 1], next[LOGIN_KEY_LEN + 1];
    assert_string_not_equal(logins_cookie(t), logins_cookie(other));
    assert_true(strlen(logins_cookie(t)) < LOGIN_COOKIE);
    add(t, &ann, false, 60, key);
    add(t, &ann, false, 60, next);
    assert_int_equal(strlen(key), LOGIN_KEY_LEN);
    assert_string_not_equal(key, next);
    struct login *l = logins_find(t, key, LOGIN_KEY_LEN);
    assert_non_null(l);
    assert_ptr_equal(login_terms(l)->who, &ann);
    assert_true(login_lasts(l) && login_terms(l)->expires_us > login_terms(l)->created_us);
    assert_null(logins_find(t, key, LOGIN_KEY_LEN - 1));
    assert_null(logins_find(t, "", 0));
    assert_false(is_there(other, key));
    key[0] = (char)(key[0] == 'A' ? 'B' : 'A');
    assert_false(is_there(t, key));
    assert_true(logins_end(t, l));
    assert_false(login_lasts(l));
    assert_false(logins_end(t, l)); /* once more changes nothing */
    login_unref(l);
    assert_true(is_there(t, next));
    logins_free(t);
    logins_free(other);
}

static void the_oldest_ends(void **state)
{
    (void)state;
    struct logins *t = logins_new(2, 2);
    char of_ann[4][LOGIN_KEY_LEN + 1], of_bob[LOGIN_KEY_LEN + 1], link[3][LOGIN_KEY_LEN + 1];
    int64_t logins, links;
    add(t, &bob, false, 60, of_bob);
    for (int i = 0; i < 4; i++) {
        struct login *oldest = i < 2 ? NULL : logins_find(t, of_ann[i - 2], LOGIN_KEY_LEN);
        add(t, &ann, false, 60, of_ann[i]);
        assert_string_equal(gone, oldest ? login_terms(oldest)->id : "");
        login_unref(oldest);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(is_there(t, of_ann[i]), i >= 2);
    assert_true(is_there(t, of_bob));
    assert_non_null(add(t, &ann, true, 60, link[0]));
    assert_non_null(add(t, &ann, true, 0.001, link[1]));
    assert_true(is_there(t, of_ann[2]) && is_there(t, link[0]));
    logins_count(t, &logins, &links);
    assert_int_equal(logins, 3);
    assert_true(links == 1 || links == 2);
    usleep(2000);
    assert_false(is_there(t, link[1]));
    assert_non_null(add(t, &ann, true, 60, link[1])); /* in place of the one that is over */
    assert_null(add(t, &ann, true, 60, link[2]));
    logins_free(t);
}

struct seen {
    size_t n;
    char id[4][ID_SIZE];
};

static void see(void *user, const struct login_terms *terms)
{
    struct seen *s = user;
    assert_true(terms->link);
    memcpy(s->id[s->n++], terms->id, ID_SIZE);
}

static void links(void **state)
{
    (void)state;
    struct logins *t = logins_new(5, 5);
    const char refs[][ID_SIZE] = {"a-one", "j-two"};
    const struct login_terms terms = {.who = &ann, .link = true, .n_refs = 2, .refs = refs};
    char key[LOGIN_KEY_LEN + 1];
    struct login *l = NULL;
    struct err e = ERR_INIT;
    struct seen s = {0};
    assert_int_equal(logins_add(t, &terms, 60, key, &l, gone, &e), ERR_OK);
    add(t, &ann, false, 60, key);
    add(t, &ann, true, 60, key);
    add(t, &bob, true, 60, key);
    assert_true(login_names(l, "a-one") && login_names(l, "j-two"));
    assert_false(login_names(l, "a-on") || login_names(l, "a-one ") || login_names(l, ""));
    assert_ptr_not_equal(login_terms(l)->refs, refs);
    logins_each_link(t, &ann, see, &s);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.id[0], login_terms(l)->id);
    assert_int_equal(logins_end_link(t, &bob, s.id[0], &e), ERR_NOT_FOUND);
    assert_int_equal(logins_end_link(t, &ann, "", &e), ERR_NOT_FOUND);
    assert_int_equal(logins_end_link(t, &ann, s.id[0], &e), ERR_OK);
    assert_int_equal(logins_end_link(t, &ann, s.id[0], &e), ERR_NOT_FOUND);
    assert_false(login_lasts(l));
    login_unref(l);
    logins_free(t);
}

static void what_a_gone_account_had(void **state)
{
    (void)state;
    struct logins *t = logins_new(5, 1);
    struct principal eve = {.name = "eve"};
    char key[LOGIN_KEY_LEN + 1], link[LOGIN_KEY_LEN + 1];
    int64_t logins, n_links;
    add(t, &eve, false, 60, key);
    add(t, &eve, true, 60, link);
    atomic_store(&eve.gone, true);
    logins_count(t, &logins, &n_links);
    assert_true(logins == 0 && n_links == 0);
    add(t, &bob, false, 60, key); /* sweeps */
    assert_false(is_there(t, link));
    logins_free(t);
}

/* Each allocation fails once: the table is as it was. */
static void without_memory(void **state)
{
    (void)state;
    struct logins *t = logins_new(5, 5);
    const struct login_terms terms = {.who = &ann};
    char key[LOGIN_KEY_LEN + 1];
    enum err_code code = ERR_OUT_OF_MEMORY;
    for (int64_t nth = 1; code != ERR_OK; nth++) {
        struct login *l = NULL;
        struct err e = ERR_INIT;
        int64_t logins, n_links;
        mem_fail_after(nth, false);
        code = logins_add(t, &terms, 60, key, &l, gone, &e);
        mem_fail_after(0, false);
        logins_count(t, &logins, &n_links);
        assert_int_equal(logins, code == ERR_OK);
        assert_int_equal(l != NULL, code == ERR_OK);
        login_unref(l);
        assert_true(nth < 100);
    }
    logins_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),           cmocka_unit_test(the_oldest_ends),
        cmocka_unit_test(links),          cmocka_unit_test(what_a_gone_account_had),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
