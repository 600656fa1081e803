/* h5_bare FILE VARIABLE SLAB THREADS: the floor of an import. Reads a variable of an HDF5 or
 * NetCDF-4 file by H5Dread, as many whole rows (of chunks) as fit SLAB bytes at a time, into one of
 * four such slabs in turn, and prints the seconds and a checksum. The slabs are of memory that was
 * touched before, as the reader's. libhdf5 does one thing at a time, so that more THREADS, each
 * with every THREADSth slab, show what its lock leaves of them. */
#include <hdf5.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLABS = 4, RANK = 32 };

static struct {
    hid_t file;
    const char *variable;
    size_t slab_bytes;
    int threads, rank;
    hsize_t shape[RANK], rows;
    size_t size;
} self;

static void check(int64_t ret, const char *what)
{
    if (ret < 0) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run(void *number)
{
    const int first = (int)(intptr_t)number;
    unsigned char *slabs = malloc(SLABS * self.slab_bytes);
    uint64_t *sum = calloc(1, sizeof *sum);
    if (!slabs || !sum)
        exit(1);
    memset(slabs, 1, SLABS * self.slab_bytes);
    hid_t set = H5Dopen2(self.file, self.variable, H5P_DEFAULT);
    hid_t type = H5Tget_native_type(H5Dget_type(set), H5T_DIR_ASCEND);
    hid_t space = H5Dget_space(set);
    int turn = 0;
    for (hsize_t at = (hsize_t)first * self.rows; at < self.shape[0];
         at += self.rows * (hsize_t)self.threads) {
        hsize_t start[RANK] = {at}, count[RANK];
        memcpy(count, self.shape, sizeof count);
        count[0] = self.shape[0] - at < self.rows ? self.shape[0] - at : self.rows;
        hid_t memory = H5Screate_simple(self.rank, count, NULL);
        unsigned char *to = slabs + (size_t)(turn++ % SLABS) * self.slab_bytes;
        check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL), "a selection");
        check(H5Dread(set, type, memory, space, H5P_DEFAULT, to), "H5Dread");
        H5Sclose(memory);
        *sum += to[0];
    }
    free(slabs);
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "h5_bare FILE VARIABLE SLAB THREADS\n");
        return 2;
    }
    self.variable = argv[2];
    self.slab_bytes = strtoull(argv[3], NULL, 10);
    self.threads = atoi(argv[4]);
    check(self.file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen");
    hid_t set = H5Dopen2(self.file, self.variable, H5P_DEFAULT);
    check(set, "H5Dopen");
    self.rank = H5Sget_simple_extent_ndims(H5Dget_space(set));
    check(self.rank > 0 && self.rank <= RANK ? 0 : -1, "a variable with 1 to 32 axes");
    check(H5Sget_simple_extent_dims(H5Dget_space(set), self.shape, NULL), "its shape");
    self.size = H5Tget_size(H5Tget_native_type(H5Dget_type(set), H5T_DIR_ASCEND));
    hsize_t row = self.size, chunks[RANK] = {1};
    for (int d = 1; d < self.rank; d++)
        row *= self.shape[d];
    hid_t plist = H5Dget_create_plist(set);
    if (H5Pget_layout(plist) == H5D_CHUNKED)
        check(H5Pget_chunk(plist, RANK, chunks), "its chunks");
    self.rows = self.slab_bytes / row / chunks[0] * chunks[0];
    if (self.rows == 0) { /* a row of chunks is larger */
        self.rows = chunks[0];
        self.slab_bytes = self.rows * row;
    }
    const double begun = now();
    pthread_t *threads = calloc((size_t)self.threads, sizeof *threads);
    for (intptr_t i = 0; threads && i < self.threads; i++)
        check(-pthread_create(&threads[i], NULL, run, (void *)i), "a thread");
    uint64_t sum = 0;
    for (int i = 0; threads && i < self.threads; i++) {
        void *part = NULL;
        pthread_join(threads[i], &part);
        sum += part ? *(uint64_t *)part : 0;
    }
    printf("%.6f %llu\n", now() - begun, (unsigned long long)sum);
    return 0;
}
