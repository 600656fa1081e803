/*
 * The C client's calls for files, against a daemon whose folder "data" has the file air.nc, with
 * a variable "air" of 12 x 4 x 6 float32 and its coordinate "lat": client_c_files ADDRESS. Run by
 * tests/http/test_client_c.py.
 */
#include "tests/clients/client_c.h"

static void test_looks(void)
{
    struct arrayd_folder folders[1];
    size_t count;
    char *text;
    OK(arrayd_folders(c, folders, 1, &count, &err));
    CHECK(count == 2 && !strcmp(folders[0].name, "data"));
    CHECK(!folders[0].read_only && folders[0].shared);
    OK(arrayd_folders(c, NULL, 0, &count, &err));
    CHECK(count == 2);
    OK(arrayd_file_look(c, "data", NULL, &text, &err));
    CHECK(strstr(text, "\"air.nc\"") && strstr(text, "\"a b&c\""));
    free(text);
    OK(arrayd_file_look(c, "data", "a b&c", &text, &err));
    CHECK(strstr(text, "\"folder\""));
    free(text);
    OK(arrayd_file_look(c, "data", "air.nc", &text, &err));
    CHECK(strstr(text, "\"variables\"") && strstr(text, "\"lat\""));
    free(text);
    FAILS(arrayd_file_look(c, "data", "../air.nc", &text, &err), 422, "bad_name");
    FAILS(arrayd_file_look(c, "none", NULL, &text, &err), 404, "not_found");
    FAILS(arrayd_file_look(c, NULL, NULL, &text, &err), 0, "bad_argument");
}

static void test_moves(void)
{
    struct arrayd_array a;
    struct arrayd_job job;
    OK(arrayd_file_import(c,
                          "{\"folder\": \"data\", \"path\": \"air.nc\", \"variables\":"
                          " [{\"variable\": \"air\", \"name\": \"t\", \"index\": \"5:8, ::2\"}],"
                          " \"coords\": false}",
                          &job, &err));
    CHECK(job.id[0]);
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_DONE && job.step == 3 * 2 * 6 * 4 && job.steps == job.step);
    OK(arrayd_find(c, "t", &a, &err));
    CHECK(a.rank == 3 && a.shape[0] == 3 && a.shape[1] == 2 && a.dtype == ARRAYD_FLOAT32);
    OK(arrayd_file_import(c, "{\"folder\": \"data\", \"path\": \"none.nc\"}", &job, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_FAILED && !strcmp(job.error.code, "not_found") &&
          job.error.detail[0]);
    CHECK(scalar("t[0, 0, 1]").re == scalar("t[0, 0, 0]").re + 1);
    FAILS(arrayd_file_import(c, "{\"folder\": \"data\"}", &job, &err), 422, "bad_field");
    FAILS(arrayd_file_import(c, NULL, &job, &err), 0, "bad_argument");

    OK(arrayd_file_export(
        c, "{\"folder\": \"data\", \"path\": \"out.nc\", \"arrays\": [\"t\"], \"coords\": false}",
        &job, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_DONE);
    OK(arrayd_file_export(c, "{\"folder\": \"data\", \"path\": \"out.nc\", \"arrays\": [\"t\"]}",
                          &job, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_FAILED && !strcmp(job.error.code, "conflict"));
}

static void test_bundles(void)
{
    const char *body = "{\"arrays\": [\"t\"], \"format\": \"netcdf4\", \"coords\": false}";
    FILE *file = tmpfile();
    CHECK(file);
    OK(arrayd_file_bundle(c, body, file, &err));
    CHECK(ftell(file) > 3 * 2 * 6 * 4);
    FAILS(arrayd_file_bundle(c, "{\"arrays\": [\"nobody\"], \"format\": \"netcdf4\"}", file, &err),
          404, "not_found");
    FAILS(arrayd_file_bundle(c, NULL, file, &err), 0, "bad_argument");
    FAILS(arrayd_file_bundle(c, body, NULL, &err), 0, "bad_argument");
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    c = client_of(argv[1], NULL);
    test_looks();
    test_moves();
    test_bundles();
    arrayd_close(c);
    return 0;
}
