/* Tokens of the infix language. Private to infix.c and infix_lex.c. */
#ifndef ARRAYD_INFIX_LEX_H
#define ARRAYD_INFIX_LEX_H

#include <stddef.h>

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/type/dtype.h"

enum token_kind {
    TOK_END,
    TOK_NUMBER, /* lit */
    TOK_NAME,   /* start, len */
    TOK_STRING, /* string */
    TOK_OP      /* start, len: an operator or a bracket */
};

struct token {
    enum token_kind kind;
    const char *start;
    size_t len;
    long offset; /* characters */
    struct literal lit;
    const char *string;
};

struct infix_lex {
    const char *p, *end;
    long offset; /* of p, in characters */
    struct arena *arena;
    struct err *e;
};

enum err_code infix_next(struct infix_lex *l, struct token *ret) must_check;

#endif
