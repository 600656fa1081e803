/* compute/memory/pieces: against a model that paints every grain, at random; every allocation
 * failing; and what fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/memory/pieces.h"

#define GRAINS 256u
#define CHUNKS 6
#define MOST   400

struct model {
    struct pieces *p;
    struct held {
        int chunk;
        uint32_t first, n;
    } all[MOST];
    int n_all;
    bool there[CHUNKS], closed[CHUNKS];
    uint32_t slot[CHUNKS];
    bool taken[CHUNKS][GRAINS];
    char names[CHUNKS]; /* their addresses stand for the chunks */
    uint32_t seed;
};

static uint32_t dice(struct model *m, uint32_t below)
{
    m->seed = m->seed * 1664525u + 1013904223u;
    return (m->seed >> 8) % below;
}

static void paint(struct model *m, int chunk, uint32_t first, uint32_t n, bool taken)
{
    assert_true(m->there[chunk] && first + n <= GRAINS && first + n > first);
    for (uint32_t i = first; i < first + n; i++) {
        assert_int_equal(m->taken[chunk][i], !taken);
        m->taken[chunk][i] = taken;
    }
}

static bool is_empty(const struct model *m, int chunk)
{
    return !memchr(m->taken[chunk], 1, GRAINS);
}

/* Whether so many grains are free side by side, in a chunk that is not closed. */
static bool has_room(const struct model *m, uint32_t n)
{
    for (int c = 0; c < CHUNKS; c++)
        for (uint32_t at = 0, run = 0; m->there[c] && !m->closed[c] && at < GRAINS; at++) {
            run = m->taken[c][at] ? 0 : run + 1;
            if (run == n)
                return true;
        }
    return false;
}

static void take(struct model *m, uint32_t n)
{
    uint32_t first;
    const bool room = has_room(m, n), plenty = has_room(m, n + n / 4);
    const char *name = m->n_all < MOST ? pieces_take(m->p, n, &first) : NULL;
    if (!name) {
        assert_true(!plenty || m->n_all == MOST);
        return;
    }
    const int chunk = (int)(name - m->names);
    assert_true(room && !m->closed[chunk]);
    paint(m, chunk, first, n, true);
    m->all[m->n_all++] = (struct held){chunk, first, n};
}

static void take_at(struct model *m, uint32_t n)
{
    const int chunk = (int)dice(m, CHUNKS);
    const uint32_t first = dice(m, GRAINS);
    bool room = m->there[chunk] && m->n_all < MOST && first + n <= GRAINS &&
                !memchr(&m->taken[chunk][first], 1, n);
    if (m->n_all == MOST || !m->there[chunk])
        return;
    assert_int_equal(pieces_take_at(m->p, m->slot[chunk], first, n), room);
    if (!room)
        return;
    paint(m, chunk, first, n, true);
    m->all[m->n_all++] = (struct held){chunk, first, n};
}

static void give(struct model *m, int which)
{
    const struct held h = m->all[which];
    m->all[which] = m->all[--m->n_all];
    paint(m, h.chunk, h.first, h.n, false);
    const bool empty = pieces_give(m->p, m->slot[h.chunk], h.first, h.n);
    assert_int_equal(empty, is_empty(m, h.chunk));
    m->there[h.chunk] = !empty;
    m->closed[h.chunk] &= !empty;
}

static void add(struct model *m)
{
    const int chunk = (int)dice(m, CHUNKS);
    if (!m->there[chunk])
        m->there[chunk] = pieces_add(m->p, &m->names[chunk], &m->slot[chunk]);
    m->closed[chunk] &= m->there[chunk];
}

static void close_or_open(struct model *m)
{
    const int chunk = (int)dice(m, CHUNKS);
    if (!m->there[chunk])
        return;
    m->closed[chunk] = dice(m, 3) == 0;
    pieces_close(m->p, m->slot[chunk], m->closed[chunk]);
    assert_int_equal(pieces_is_closed(m->p, m->slot[chunk]), m->closed[chunk]);
}

static void count(struct model *m)
{
    uint32_t at = 0;
    int n = 0, there = 0;
    uint64_t open = 0;
    while (pieces_next(m->p, &at))
        n++;
    for (int c = 0; c < CHUNKS; c++) {
        uint32_t left = 0;
        for (uint32_t i = 0; m->there[c] && i < GRAINS; i++)
            left += !m->taken[c][i];
        there += m->there[c];
        open += m->closed[c] ? 0 : left;
        assert_true(!m->there[c] || pieces_left(m->p, m->slot[c]) == left);
    }
    assert_int_equal(n, there);
    assert_int_equal(pieces_left_open(m->p), open);
}

static void at_random(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct model m = {.p = pieces_new(GRAINS), .seed = seed};
        assert_non_null(m.p);
        const uint32_t most = 1 + dice(&m, seed & 1 ? 12 : GRAINS);
        for (int i = 0; i < 20000; i++) {
            const uint32_t what = dice(&m, 100);
            const bool grows = i / 4000 & 1;
            if (what < 3)
                add(&m);
            else if (what < 5)
                close_or_open(&m);
            else if (what < 10)
                take_at(&m, 1 + dice(&m, most));
            else if (what < (grows ? 40 : 65))
                take(&m, 1 + dice(&m, most));
            else if (m.n_all)
                give(&m, (int)dice(&m, (uint32_t)m.n_all));
            if (i % 1000 == 0)
                count(&m);
        }
        while (m.n_all)
            give(&m, m.n_all - 1);
        pieces_free(m.p);
    }
}

/* Nothing between them is lost. */
static void all_of_a_chunk(void **state)
{
    (void)state;
    char chunk;
    uint32_t slot, first, sum = 0, firsts[GRAINS];
    for (uint32_t n = 1; n <= GRAINS; n++) {
        struct pieces *p = pieces_new(GRAINS);
        assert_null(pieces_take(p, n, &first));
        assert_true(pieces_add(p, &chunk, &slot));
        uint32_t got = 0;
        while (pieces_take(p, n, &first))
            firsts[got++] = first;
        assert_int_equal(got, GRAINS / n);
        for (uint32_t left = GRAINS - got * n; left; left--)
            assert_non_null(pieces_take(p, 1, &first));
        assert_null(pieces_take(p, 1, &first));
        for (uint32_t i = 0; i < got; i++)
            assert_false(pieces_give(p, slot, firsts[i], n) && got * n < GRAINS);
        sum += got;
        pieces_free(p);
    }
    assert_true(sum > GRAINS);
}

static void without_memory(void **state)
{
    (void)state;
    const int64_t live = mem_live();
    char chunks[20];
    uint32_t slot, first;
    for (long nth = 1;; nth++) {
        mem_fail_after(nth, false);
        struct pieces *p = pieces_new(GRAINS);
        int there = 0;
        for (int i = 0; p && i < 20; i++)
            there += pieces_add(p, &chunks[i], &slot);
        mem_fail_after(0, false);
        for (int i = 0; i < there; i++)
            assert_non_null(pieces_take(p, GRAINS, &first));
        assert_true(!p || !pieces_take(p, 1, &first));
        pieces_free(p);
        assert_int_equal(mem_live(), live);
        if (there == 20)
            break;
    }
}

static void it_is_quick(void **state)
{
    (void)state;
    enum { N = 4000 };
    static char chunks[64];
    static uint32_t slots[64], firsts[N], where[N];
    struct pieces *p = pieces_new(4096);
    for (int i = 0; i < 64; i++)
        assert_true(pieces_add(p, &chunks[i], &slots[i]));
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        double begun = clock_ms();
        for (uint32_t i = 0; i < N; i++)
            where[i] = (uint32_t)((char *)pieces_take(p, 1 + i % 60, &firsts[i]) - chunks);
        for (uint32_t i = 0; i < N - 1; i++)
            if (pieces_give(p, slots[where[i]], firsts[i], 1 + i % 60))
                (void)pieces_add(p, &chunks[where[i]], &slots[where[i]]);
        double ns = (clock_ms() - begun) * 1e6 / N;
        best = ns < best ? ns : best;
        if (pieces_give(p, slots[where[N - 1]], firsts[N - 1], 1 + (N - 1) % 60))
            (void)pieces_add(p, &chunks[where[N - 1]], &slots[where[N - 1]]);
    }
    printf("taking and giving back: %.0f ns\n", best);
    assert_true(best < 20000); /* whatever the machine is doing */
    pieces_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_random),
        cmocka_unit_test(all_of_a_chunk),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(it_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
