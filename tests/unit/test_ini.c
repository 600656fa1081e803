/* server/ini: what is a section, a value, a comment, a mistake; lines of every length and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/ini.h"

/* A text as "section[…] name=value ! mistake", one word a line, "-" for an empty one. */
static const char *all_n(const char *text, size_t n)
{
    static char out[4096];
    size_t len = 0;
    struct ini_line l = {.at = text};
    const char *at = text;
    out[0] = '\0';
    for (size_t number = 1; ini_next(text + n, &l); number++) {
        assert_ptr_equal(l.at, at);
        assert_true(l.n > 0);
        assert_int_equal(l.number, number);
        at += l.n;
        if (len)
            out[len++] = '|';
        if (l.kind == INI_EMPTY)
            len += (size_t)sprintf(out + len, "-");
        else if (l.kind == INI_SECTION)
            len += (size_t)sprintf(out + len, "[%.*s]", (int)l.name.n, l.name.at);
        else if (l.kind == INI_VALUE)
            len += (size_t)sprintf(out + len, "%.*s=%.*s", (int)l.name.n, l.name.at, (int)l.value.n,
                                   l.value.at);
        else
            len += (size_t)sprintf(out + len, "!%s", l.mistake);
    }
    assert_ptr_equal(at, text + n); /* nothing is passed over */
    return out;
}

static const char *all(const char *text)
{
    return all_n(text, strlen(text));
}

static void lines(void **state)
{
    (void)state;
    assert_string_equal(all(""), "");
    assert_string_equal(all("\n"), "-");
    assert_string_equal(all("a=1"), "a=1");
    assert_string_equal(all("a = 1 \n\t b=  2 3\n"), "a=1|b=2 3");
    assert_string_equal(all("a =\n= b\n=\n"), "a=|=b|=");
    assert_string_equal(all("a = b = c\n"), "a=b = c");
    assert_string_equal(all("[x]\n [ y z ] \n[a]b]\n"), "[x]|[y z]|[a]b]");
}

static void comments(void **state)
{
    (void)state;
    assert_string_equal(all("# a = 1\n;b = 2\n  # c\n"), "-|-|-");
    assert_string_equal(all("a = 1 # x\nb = 2\t;x\nc =#\n"), "a=1|b=2|c=#");
    assert_string_equal(all("a = b#c;d\na# = 1\n"), "a=b#c;d|a#=1");
    assert_string_equal(all("[x] # hers\n[y#z]\n"), "[x]|[y#z]");
}

static void ends_of_lines_and_the_beginning_of_the_file(void **state)
{
    (void)state;
    assert_string_equal(all("a = 1\r\n\r\n# x\r\nb = 2\r"), "a=1|-|-|b=2");
    assert_string_equal(all("\xef\xbb\xbf"
                            "a = 1\nb = 2\n"),
                        "a=1|b=2");
    assert_string_equal(all("\xef\xbb\xbf"), "-");
    /* within the file it is a character as any other */
    assert_string_equal(all("a = 1\n\xef\xbb\xbf"
                            "b = 2\n"),
                        "a=1|\xef\xbb\xbf"
                        "b=2");
}

static void mistakes(void **state)
{
    (void)state;
    static const char nul[] = "a = 1\nb = 2\0c\n# \0\n";
    assert_string_equal(
        all_n(nul, sizeof nul - 1),
        "a=1|!the line contains a NUL character|!the line contains a NUL character");
    assert_string_equal(all("what\n"), "!expected 'name = value'");
    assert_string_equal(all("a: 1\n"), "!expected 'name = value'");
    assert_string_equal(all("[x\n"),
                        "!a section must be '[name]', followed by nothing but a comment");
    assert_string_equal(all("[x] y\n"),
                        "!a section must be '[name]', followed by nothing but a comment");
    assert_string_equal(all("[\n"),
                        "!a section must be '[name]', followed by nothing but a comment");
    assert_string_equal(all("[]\n[ ]\n"), "!the brackets contain no name|"
                                          "!the brackets contain no name");
    /* the comment would take what an editor shows as a line of its own */
    assert_string_equal(all("# x\ra = 1\n"), "!the line contains a CR without an LF after it");
}

/* Whatever its length, a line is one: of a comment, a name, a value. */
static void long_lines(void **state)
{
    (void)state;
    static char text[70000];
    static const size_t sizes[] = {197, 198, 199, 200, 254, 255, 256, 1023, 4095, 4096, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int what = 0; what < 3; what++) {
            size_t n = (size_t)sprintf(text, "%s", what == 0 ? "# " : what == 1 ? "" : "a = ");
            memset(text + n, 'x', sizes[i]);
            n += sizes[i];
            n += (size_t)sprintf(text + n, "%sevict = true\nb = 2\n", what == 1 ? "=" : "");
            struct ini_line l = {.at = text};
            assert_true(ini_next(text + n, &l));
            assert_int_equal(l.kind, what == 0 ? INI_EMPTY : INI_VALUE);
            if (what == 1)
                assert_int_equal(l.name.n, sizes[i]);
            if (what == 2)
                assert_int_equal(l.value.n, sizes[i] + strlen("evict = true"));
            assert_true(ini_next(text + n, &l));
            assert_true(ini_is(l.name, "b") && ini_is(l.value, "2") && l.number == 2);
            assert_false(ini_next(text + n, &l));
        }
}

static void reading(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct strb text = {0};
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "a\0b", 3), 3);
    close(fds[1]);
    assert_int_equal(ini_read(fds[0], "it", &text, &e), ERR_OK);
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.data, "a\0b", 3);
    close(fds[0]);
    strb_free(&text);
    assert_int_equal(ini_read(-1, "it", &text, &e), ERR_BAD_FIELD);
    assert_string_equal(e.message, "it: Bad file descriptor");
    FILE *endless = fopen("/dev/zero", "r");
    assert_non_null(endless);
    assert_int_equal(ini_read(fileno(endless), "it", &text, &e), ERR_BAD_FIELD);
    assert_string_equal(e.message, "it: the file is larger than 4194304 bytes");
    fclose(endless);
    strb_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(comments),
        cmocka_unit_test(ends_of_lines_and_the_beginning_of_the_file),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
