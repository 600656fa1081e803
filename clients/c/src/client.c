/*
 * Making and closing clients, and requests of any kind.
 *
 * Header fields are put together once, here, and what would end a field early is refused: a token
 * with a line break in it must not become a field of its own.
 */
#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* libcurl's own state; before 7.84 it may not be made by two threads at once. */
static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static bool printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 127)
            return false;
    return true;
}

/* Copies text; without memory *failed is set. */
static char *copy(const char *text, size_t length, bool *failed)
{
    char *ret = strndup(text, length);
    *failed |= !ret;
    return ret;
}

static char *field(const char *name, const char *value, bool *failed)
{
    struct text text = {0};
    text_puts(&text, name);
    text_puts(&text, value);
    *failed |= text.failed;
    return text.data;
}

static int check(const char *url, const struct arrayd_options *options, struct arrayd_error *err)
{
    if (!url || (strncasecmp(url, "http://", 7) && strncasecmp(url, "https://", 8) &&
                 strncmp(url, "unix:", 5)))
        return error_set(err, "bad_argument",
                         "an address must be http://HOST:PORT, https://HOST:PORT or unix:PATH");
    bool is_unix = !strncmp(url, "unix:", 5);
    if (is_unix ? !url[5] : !printable(url) || strpbrk(url, "?#@"))
        return error_set(err, "bad_argument", "'%s' is not a valid address", url);
    const char *given[] = {options->token, options->session, options->lease};
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
        if (given[i] && (!*given[i] || !printable(given[i])))
            return error_set(err, "bad_argument",
                             "a token or id must not be empty and must not contain blanks or "
                             "control characters");
    if (options->timeout_ms < 0 || options->connect_timeout_ms < 0)
        return error_set(err, "bad_argument", "a timeout must not be negative");
    return 0;
}

int arrayd_connect(const char *url, const struct arrayd_options *options,
                   struct arrayd **ret_client, struct arrayd_error *err)
{
    static const struct arrayd_options none;
    bool failed = false;
    options = options ? options : &none;
    if (check(url, options, err))
        return -1;
    pthread_once(&once, init_curl);
    struct arrayd *client = calloc(1, sizeof(*client));
    if (!client)
        return error_no_memory(err);
    if (!strncmp(url, "unix:", 5)) {
        client->base = copy("http://localhost", 16, &failed);
        client->unix_path = copy(url + 5, strlen(url + 5), &failed);
    } else {
        size_t length = strlen(url);
        while (url[length - 1] == '/')
            length--;
        client->base = copy(url, length, &failed);
    }
    if (options->ca_file)
        client->ca_file = copy(options->ca_file, strlen(options->ca_file), &failed);
    if (options->token)
        client->authorize = field("Authorization: Bearer ", options->token, &failed);
    if (options->lease)
        client->lease = field("Arrayd-Lease: ", options->lease, &failed);
    client->connect_ms = options->connect_timeout_ms;
    client->timeout_ms = options->timeout_ms;
    client->curl = curl_easy_init();
    if (failed || !client->curl || arrayd_session_use(client, options->session, err)) {
        arrayd_close(client);
        return error_no_memory(err);
    }
    *ret_client = client;
    return 0;
}

void arrayd_close(struct arrayd *client)
{
    if (!client)
        return;
    curl_easy_cleanup(client->curl);
    free(client->base);
    free(client->unix_path);
    free(client->ca_file);
    free(client->authorize);
    free(client->lease);
    free(client->session);
    free(client->session_id);
    free(client);
}

int arrayd_session_use(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    bool failed = false;
    char *fresh = NULL, *fresh_id = NULL;
    if (id && (!*id || !printable(id)))
        return error_set(err, "bad_argument", "'%s' is not a session id", id);
    if (id) {
        fresh = field("Arrayd-Session: ", id, &failed);
        fresh_id = copy(id, strlen(id), &failed);
    }
    if (failed) {
        free(fresh);
        free(fresh_id);
        return error_no_memory(err);
    }
    free(client->session);
    free(client->session_id);
    client->session = fresh;
    client->session_id = fresh_id;
    return 0;
}

int arrayd_lease_use(struct arrayd *client, const char *tokens, struct arrayd_error *err)
{
    bool failed = false;
    if (tokens && (!*tokens || !printable(tokens)))
        return error_set(err, "bad_argument", "'%s' is not the token of a lease", tokens);
    char *fresh = tokens ? field("Arrayd-Lease: ", tokens, &failed) : NULL;
    if (failed) {
        free(fresh);
        return error_no_memory(err);
    }
    free(client->lease);
    client->lease = fresh;
    return 0;
}

int arrayd_ping(struct arrayd *client, struct arrayd_error *err)
{
    struct exchange ready = {.method = "GET"};
    text_puts(&ready.target, "/readyz");
    if (exchange_done(client, &ready, err))
        return -1;
    struct exchange known = {.method = "GET"}; /* /readyz asks nobody who he is */
    text_puts(&known.target, "/v1/sessions?limit=1");
    return exchange_done(client, &known, err);
}

int arrayd_request(struct arrayd *client, const char *method, const char *path, const char *body,
                   char **ret_text, struct arrayd_error *err)
{
    struct exchange x = {.method = method};
    if (!method || !*method || !path || path[0] != '/' || !printable(path) || strchr(path, '#'))
        x.refused = "a request needs a method and a path; the path must begin with '/' and must "
                    "not contain blanks or '#'";
    for (const char *c = method; c && *c; c++)
        if (!isupper((unsigned char)*c))
            x.refused = "a method must be in capital letters";
    text_puts(&x.target, path ? path : "");
    x.accept = "application/json, */*;q=0.5";
    if (body)
        text_puts(&x.json, body);
    return exchange_text(client, &x, ret_text, err);
}
