/* Build tool, run by Meson: writes a file's bytes as a C array. `embed INPUT OUTPUT NAME` gives
 * `const char NAME[]` (NUL-terminated) and `const unsigned long NAME_len`. */
#include <stdio.h>

int main(int argc, char **argv)
{
    FILE *in = argc == 4 ? fopen(argv[1], "rb") : NULL;
    FILE *out = in ? fopen(argv[2], "wb") : NULL;
    if (!out) {
        fprintf(stderr, "usage: embed INPUT OUTPUT NAME\n");
        return 1;
    }
    unsigned long n = 0;
    fprintf(out, "extern const char %s[];\nextern const unsigned long %s_len;\n", argv[3], argv[3]);
    fprintf(out, "const char %s[] =\n\"", argv[3]);
    for (int c = getc(in); c != EOF; c = getc(in), n++) {
        if (c == '\n')
            fputs("\\n\"\n\"", out);
        else if (c == '"' || c == '\\' || c == '?')
            fprintf(out, "\\%c", c);
        else if (c >= 32 && c < 127)
            putc(c, out);
        else
            fprintf(out, "\\%03o", (unsigned)c);
    }
    fprintf(out, "\";\nconst unsigned long %s_len = %lu;\n", argv[3], n);
    int failed = ferror(in) | ferror(out);
    failed |= fclose(out);
    fclose(in);
    return failed ? 1 : 0;
}
