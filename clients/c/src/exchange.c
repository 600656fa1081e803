/*
 * One request and its reply, on libcurl's easy interface.
 *
 * Bodies are read from where they lie and data are written where they belong, so that nothing of an
 * array is kept here. The size of data is compared with the caller's before the first byte is
 * written, by the reply's Content-Length. Bodies cannot be rewound: libcurl, which would send a
 * request again when a kept-alive connection ends under it, fails instead once it has read of the
 * body.
 */
#include "clients/c/src/exchange.h"

#include <curl/curl.h>
#include <string.h>

#include "clients/c/src/error.h"
#include "clients/c/src/json.h"
#include "clients/c/src/quiet.h"

#define CONNECT_MS   10000
#define ERROR_BYTES  65536 /* of an error's body are kept */
#define BUFFER_BYTES 524288L

void exchange_path(struct exchange *x, const char *head, const char *name, const char *tail)
{
    if (!name || !*name)
        x->refused = "the name or id is empty";
    else if (!strcmp(name, ".") || !strcmp(name, ".."))
        x->refused = "this is not a valid name or id";
    text_puts(&x->target, head);
    text_puts(&x->target, "/");
    text_escape(&x->target, name ? name : "");
    text_puts(&x->target, tail);
}

void exchange_query(struct exchange *x, const char *key, const char *value)
{
    if (!value)
        return;
    text_puts(&x->target, strchr(text_get(&x->target), '?') ? "&" : "?");
    text_puts(&x->target, key);
    text_puts(&x->target, "=");
    text_escape(&x->target, value);
}

static size_t give(char *into, size_t one, size_t count, void *arg)
{
    struct exchange *x = arg;
    count *= one;
    if (x->from) {
        count = fread(into, 1, count, x->from);
        x->file_failed = ferror(x->from);
        return x->file_failed ? CURL_READFUNC_ABORT : count;
    }
    if (count > x->body_size - x->sent)
        count = x->body_size - x->sent;
    if (count)
        memcpy(into, (const char *)x->body + x->sent, count);
    x->sent += count;
    return count;
}

/* Whether the reply, whose header is here, is what was asked for. */
static bool wanted(struct exchange *x)
{
    const char *type = NULL;
    curl_off_t length = -1;
    curl_easy_getinfo(x->client->curl, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(x->client->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    const bool any = x->accept && !strcmp(x->accept, ANY_TYPE);
    x->wrong_type = !any && (!type || !x->accept || strncmp(type, x->accept, strlen(x->accept)));
    x->wrong_size = x->into && length >= 0 && (uint64_t)length != x->into_size;
    return !x->wrong_type && !x->wrong_size;
}

static size_t take(char *bytes, size_t one, size_t count, void *arg)
{
    struct exchange *x = arg;
    long status = 0;
    count *= one;
    curl_easy_getinfo(x->client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 300 || (!x->into && !x->to && !x->receive)) {
        size_t kept = count;
        if (status >= 300 && kept > ERROR_BYTES - x->reply.length)
            kept = ERROR_BYTES - x->reply.length;
        text_add(&x->reply, bytes, kept);
        return x->reply.failed ? 0 : count;
    }
    if (!x->received && !wanted(x))
        return 0;
    if (x->into) {
        x->wrong_size = count > x->into_size - x->received;
        if (x->wrong_size)
            return 0;
        memcpy((char *)x->into + x->received, bytes, count);
    } else if (x->receive) {
        x->enough = !x->receive(x->receiver, bytes, count);
        if (x->enough)
            return 0;
    } else if (fwrite(bytes, 1, count, x->to) != count) {
        x->file_failed = true;
        return 0;
    }
    x->received += count;
    return count;
}

static bool add(struct curl_slist **list, const char *field)
{
    if (!field)
        return true;
    struct curl_slist *longer = curl_slist_append(*list, field);
    if (longer)
        *list = longer;
    return longer;
}

static bool add_fields(struct exchange *x, bool has_body, struct curl_slist **list)
{
    char field[96];
    snprintf(field, sizeof(field), "Accept: %s", x->accept ? x->accept : JSON_TYPE);
    if (!add(list, field) || !add(list, x->client->authorize) || !add(list, x->client->lease) ||
        !add(list, x->client->session))
        return false;
    if (has_body) {
        snprintf(field, sizeof(field), "Content-Type: %s", x->type ? x->type : JSON_TYPE);
        if (!add(list, field))
            return false;
    }
    if (x->last_event) {
        snprintf(field, sizeof(field), "Last-Event-ID: %s", x->last_event);
        if (!add(list, field))
            return false;
    }
    if (x->wait_s) {
        snprintf(field, sizeof(field), "Prefer: wait=%ld", x->wait_s);
        if (!add(list, field))
            return false;
    }
    return true;
}

static void set_up(struct exchange *x, const char *url, const struct curl_slist *fields, char *why)
{
    const struct arrayd *client = x->client;
    CURL *curl = client->curl;
    long timeout_ms = client->timeout_ms;
    if (timeout_ms && x->wait_s)
        timeout_ms += x->wait_s * 1000;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                     client->connect_ms ? client->connect_ms : CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
    if (client->unix_path) {
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->unix_path);
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
    }
    if (client->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->ca_file);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, give);
    curl_easy_setopt(curl, CURLOPT_READDATA, x);
}

/* What is sent: nothing, the caller's memory, a file, or the JSON that was put together. */
static bool set_body(struct exchange *x)
{
    CURL *curl = x->client->curl;
    bool has_body = x->body || x->from || x->json.length || x->type;
    if (x->json.length) {
        x->body = x->json.data;
        x->body_size = x->json.length;
    }
    if (has_body || !strcmp(x->method, "POST") || !strcmp(x->method, "PUT")) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
                         (curl_off_t)(x->from ? x->from_size : (int64_t)x->body_size));
    }
    if (!strcmp(x->method, "HEAD"))
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, x->method);
    return has_body;
}

static int failed(const struct exchange *x, CURLcode code, const char *why,
                  struct arrayd_error *err)
{
    const char *sentence = why[0] ? why : curl_easy_strerror(code);
    const char *where = x->client->unix_path ? x->client->unix_path : x->client->base;
    if (x->reply.failed || code == CURLE_OUT_OF_MEMORY)
        return error_no_memory(err);
    if (x->file_failed)
        return error_set(err, "file", "the file could not be %s", x->to ? "written" : "read");
    if (x->wrong_size)
        return error_set(err, "bad_result",
                         "the size of the data differs from the %zu bytes of memory", x->into_size);
    if (x->wrong_type)
        return error_set(err, "bad_result", "the reply is not %s", x->accept);
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        return error_set(err, "timeout", "%s did not reply in time: %s", where, sentence);
    case CURLE_URL_MALFORMAT:
        return error_set(err, "bad_argument", "cannot send a request to '%s': %s", where, sentence);
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM:
        return error_set(err, "tls", "cannot establish a trusted connection to %s: %s", where,
                         sentence);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        return error_set(err, "connection", "cannot connect to %s: %s", where, sentence);
    default:
        return error_set(err, "connection", "the connection to %s failed: %s", where, sentence);
    }
}

static int judge(struct exchange *x, struct arrayd_error *err)
{
    curl_off_t retry_after = 0;
    curl_easy_getinfo(x->client->curl, CURLINFO_RESPONSE_CODE, &x->status);
    curl_easy_getinfo(x->client->curl, CURLINFO_RETRY_AFTER, &retry_after);
    if (x->status >= 300)
        return error_from_reply(err, x->status, retry_after ? (int64_t)retry_after : -1,
                                text_get(&x->reply), x->reply.length);
    if (x->into && x->received != x->into_size) {
        x->wrong_size = true;
        return failed(x, CURLE_OK, "", err);
    }
    return 0;
}

int exchange_run(struct arrayd *client, struct exchange *x, struct arrayd_error *err)
{
    char why[CURL_ERROR_SIZE] = "";
    struct curl_slist *fields = NULL;
    struct text url = {0};
    int ret = -1;
    x->client = client;
    text_puts(&url, client->base);
    text_puts(&url, text_get(&x->target));
    if (x->refused) {
        error_set(err, "bad_argument", "%s", x->refused);
    } else if (x->body_size > INT64_MAX) {
        error_set(err, "bad_argument", "the request is too large");
    } else if (x->target.failed || x->json.failed || url.failed) {
        error_no_memory(err);
    } else {
        struct quiet quiet;
        bool ready;
        set_up(x, text_get(&url), NULL, why);
        ready = add_fields(x, set_body(x), &fields);
        curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, fields);
        quiet_begin(&quiet);
        CURLcode code = ready ? curl_easy_perform(client->curl) : CURLE_OUT_OF_MEMORY;
        quiet_end(&quiet);
        ret = code == CURLE_OK || x->enough ? judge(x, err) : failed(x, code, why, err);
        curl_easy_setopt(client->curl, CURLOPT_ERRORBUFFER, NULL);
    }
    curl_slist_free_all(fields);
    text_free(&url);
    return ret;
}

void exchange_free(struct exchange *x)
{
    text_free(&x->target);
    text_free(&x->json);
    text_free(&x->reply);
}

int exchange_done(struct arrayd *client, struct exchange *x, struct arrayd_error *err)
{
    int ret = exchange_run(client, x, err);
    exchange_free(x);
    return ret;
}

int exchange_text(struct arrayd *client, struct exchange *x, char **ret_text,
                  struct arrayd_error *err)
{
    int ret = exchange_run(client, x, err);
    if (!ret && ret_text) {
        text_add(&x->reply, "", 0); /* an empty reply is a text, too */
        if (x->reply.failed) {
            ret = error_no_memory(err);
        } else {
            *ret_text = x->reply.data;
            x->reply = (struct text){0};
        }
    }
    exchange_free(x);
    return ret;
}

int exchange_json(struct arrayd *client, struct exchange *x, struct cJSON **ret_tree,
                  struct arrayd_error *err)
{
    int ret = exchange_run(client, x, err);
    if (!ret) {
        struct cJSON *tree = json_read(text_get(&x->reply), x->reply.length);
        if (tree)
            *ret_tree = tree;
        else
            ret = error_set(err, "bad_result", "the reply is not JSON");
    }
    exchange_free(x);
    return ret;
}
