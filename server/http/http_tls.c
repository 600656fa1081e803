/* TLS: libmicrohttpd does it with GnuTLS; this file holds the certificate.
 *
 * libmicrohttpd gets the certificate at every handshake from a callback without a user pointer, so
 * the current one is a variable of the process. A new one replaces it for later connections. Older
 * ones are kept until the end, since a handshake may be using them; they are small and rarely
 * replaced. (SIGHUP comes more often, for the accounts: an unchanged certificate is not kept
 * twice.)
 *
 * The files are read and checked against each other (does the key fit, is it a certificate at all)
 * before anything is replaced. */
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"

#define CHAIN_MAX 16
#define FILE_MOST (1 << 20)
#define SOON_S    (14 * 86400) /* warn about a certificate that expires sooner */

const char http_tls_versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

struct identity {
    struct identity *older;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned n;
    gnutls_privkey_t key;
};

static _Atomic(struct identity *) present;

static void identity_free(struct identity *id)
{
    if (!id)
        return;
    for (unsigned i = 0; i < id->n; i++)
        gnutls_pcert_deinit(&id->chain[i]);
    if (id->key)
        gnutls_privkey_deinit(id->key);
    mem_free(id);
}

static int retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
                    const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
                    gnutls_pcert_st **ret_chain, unsigned *ret_n, gnutls_privkey_t *ret_key)
{
    (void)session, (void)authorities, (void)n_authorities, (void)algorithms, (void)n_algorithms;
    struct identity *id = atomic_load(&present);
    *ret_chain = id->chain;
    *ret_n = id->n;
    *ret_key = id->key;
    return 0;
}

void *http_tls_callback(void)
{
    union {
        gnutls_certificate_retrieve_function2 *function;
        void *pointer; /* the type that MHD_OPTION_ARRAY wants */
    } u = {.function = retrieve};
    return u.pointer;
}

/* --- files --- */

/* Whether the key fits the certificate. GnuTLS checks that only when both go into one of these. */
static int fit(const gnutls_datum_t *cert, const gnutls_datum_t *key)
{
    gnutls_certificate_credentials_t both;
    int rc = gnutls_certificate_allocate_credentials(&both);
    if (rc < 0)
        return rc;
    rc = gnutls_certificate_set_x509_key_mem2(both, cert, key, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_certificate_free_credentials(both);
    return rc < 0 ? rc : 0;
}

static void tell_end(const char *path, const gnutls_datum_t *cert)
{
    gnutls_x509_crt_t first;
    char date[64];
    struct tm tm;
    if (gnutls_x509_crt_init(&first) < 0)
        return;
    time_t end = gnutls_x509_crt_import(first, cert, GNUTLS_X509_FMT_PEM) < 0
                     ? (time_t)-1
                     : gnutls_x509_crt_get_expiration_time(first);
    gnutls_x509_crt_deinit(first);
    if (end == (time_t)-1 || !gmtime_r(&end, &tm))
        return;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    time_t left = end - clock_date();
    log_event(left < SOON_S ? LOG_WARN : LOG_INFO,
              left < 0 ? "the certificate has expired" : "the certificate was loaded", "file", path,
              "until", date, NULL);
}

static enum err_code parse(const struct http_config *c, const gnutls_datum_t *cert,
                           const gnutls_datum_t *key, struct identity *id, struct err *e)
{
    unsigned n = CHAIN_MAX;
    int rc = gnutls_pcert_list_import_x509_raw(id->chain, &n, cert, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0)
        return err_set(e, ERR_BAD_FIELD, "tls-cert %s: %s", c->tls_cert, gnutls_strerror(rc));
    id->n = n;
    rc = gnutls_privkey_init(&id->key);
    if (rc >= 0)
        rc = gnutls_privkey_import_x509_raw(id->key, key, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc < 0)
        return err_set(e, ERR_BAD_FIELD, "tls-key %s: %s", c->tls_key, gnutls_strerror(rc));
    rc = fit(cert, key);
    return rc < 0 ? err_set(e, ERR_BAD_FIELD, "tls-cert %s and tls-key %s: %s", c->tls_cert,
                            c->tls_key, gnutls_strerror(rc))
                  : ERR_OK;
}

/* GnuTLS reads its input to the end, and a device or a pipe need not have one. */
static enum err_code load_file(const char *option, const char *path, gnutls_datum_t *ret,
                               struct err *e)
{
    struct stat st;
    if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > FILE_MOST))
        return err_set(e, ERR_BAD_FIELD, "%s %s: %s", option, path,
                       S_ISREG(st.st_mode) ? "the file is too large"
                                           : "this is not a regular file");
    int rc = gnutls_load_file(path, ret);
    return rc < 0 ? err_set(e, ERR_BAD_FIELD, "%s %s: %s", option, path, gnutls_strerror(rc))
                  : ERR_OK;
}

/* The secret must not stay in freed memory. */
static void datum_free(gnutls_datum_t *d)
{
    if (d->data)
        gnutls_memset(d->data, 0, d->size);
    gnutls_free(d->data);
}
#define _cleanup_datum_ __attribute__((cleanup(datum_free)))

static enum err_code load(const struct http_config *c, struct identity *id, struct err *e)
{
    _cleanup_datum_ gnutls_datum_t cert = {0}, key = {0};
    TRY(load_file("tls-cert", c->tls_cert, &cert, e));
    TRY(load_file("tls-key", c->tls_key, &key, e));
    TRY(parse(c, &cert, &key, id, e));
    tell_end(c->tls_cert, &cert);
    return ERR_OK;
}

/* The keys are then the same too, since each fits its certificate. */
static bool same_chain(const struct identity *a, const struct identity *b)
{
    bool same = a && a->n == b->n;
    for (unsigned i = 0; same && i < a->n; i++)
        same = a->chain[i].cert.size == b->chain[i].cert.size &&
               memcmp(a->chain[i].cert.data, b->chain[i].cert.data, a->chain[i].cert.size) == 0;
    return same;
}

enum err_code http_tls_load(const struct http_config *c, struct err *e)
{
    if (!c->tls_cert || !c->tls_key)
        return err_set(e, ERR_BAD_FIELD, "tls-cert and tls-key must be given together");
    if (!MHD_is_feature_supported(MHD_FEATURE_TLS) ||
        !MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK))
        return err_set(e, ERR_BAD_FIELD,
                       "tls-cert: this libmicrohttpd (%s) was built without TLS: use one with TLS, "
                       "or put a proxy in front of the daemon",
                       MHD_get_version());
    struct identity *id = mem_calloc(1, sizeof *id);
    if (!id)
        return err_oom(e);
    enum err_code code = load(c, id, e);
    id->older = atomic_load(&present);
    if (code != ERR_OK || same_chain(id->older, id)) {
        identity_free(id);
        return code;
    }
    atomic_store(&present, id);
    return ERR_OK;
}

void http_tls_free(void)
{
    struct identity *id = atomic_exchange(&present, NULL);
    while (id) {
        struct identity *older = id->older;
        identity_free(id);
        id = older;
    }
}

/* --- by hand --- */

void http_tls_send(struct conn *c, const char *p, size_t n)
{
    while (n) {
        ssize_t k = gnutls_record_send(c->tls, p, n);
        if (k == GNUTLS_E_INTERRUPTED)
            continue;
        if (k <= 0)
            return; /* a client that does not read its last reply loses it */
        p += k;
        n -= (size_t)k;
    }
    (void)gnutls_bye(c->tls, GNUTLS_SHUT_WR);
}
