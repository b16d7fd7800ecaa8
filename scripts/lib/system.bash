# Programs and libraries that only the system can give.

# The Python to use: python3 if it is new enough, else a newer one; status 1 if there is none.
find_python() {
    local candidate
    for candidate in "${DAEOSENS_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        "$candidate" -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)' 2>/dev/null &&
            return
    done
    return 1
}

# Does C code that includes HEADER compile and link with the given flags?
links_with() {
    local compiler=$1
    shift
    echo 'int main(void) { return 0; }' | "$compiler" -x c /dev/stdin -o /dev/null "$@" 2>/dev/null
}

# missing_packages PYTHON NEEDS_PETSC: one line for each thing that is missing: Debian package, what it is for.
missing_packages() {
    local python=$1 needs_petsc=$2
    if [ -z "$python" ]; then
        echo "python3 Python >= 3.11"
        echo "python3-venv Python's venv module"
        echo "python3-dev Python's C headers"
    else
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "$(debian_python "$python")-venv Python's venv module"
        "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
            echo "$(debian_python "$python")-dev Python's C headers"
    fi
    command -v cc >/dev/null || echo "build-essential a C compiler"
    command -v mpiexec >/dev/null || echo "openmpi-bin mpiexec"
    [ "$needs_petsc" = yes ] || return 0
    command -v c++ >/dev/null || echo "build-essential a C++ compiler"
    command -v make >/dev/null || echo "build-essential make"
    command -v mpicc >/dev/null || echo "libopenmpi-dev MPI's compiler wrapper mpicc"
    links_with cc -lopenblas || echo "libopenblas-dev OpenBLAS"
}

# The package of /usr/bin/python3 is python3-*, that of another Python has its version in the name.
debian_python() {
    case $1 in
        /usr/bin/python3 | /bin/python3) echo python3 ;;
        *) "$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])' ;;
    esac
}

# as_root COMMAND...: as root or by a sudo that asks nothing; status 1 without running if neither is there.
may_become_root() { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
root_prefix() { [ "$(id -u)" -eq 0 ] || echo "sudo -n"; }

# install_missing LOG NEEDS_PETSC: sees to it that nothing is missing, or ends with the list and the command.
install_missing() {
    local log=$1 needs_petsc=$2 missing packages remedy
    missing=$(missing_packages "$(find_python || true)" "$needs_petsc")
    [ -n "$missing" ] || return 0
    packages=$(echo "$missing" | cut -d ' ' -f 1 | sort -u | tr '\n' ' ')
    packages=${packages% }
    say "missing: $(echo "$missing" | cut -d ' ' -f 2- | paste -s -d ',' | sed 's/,/, /g')"
    remedy="sudo apt-get update && sudo apt-get install --no-install-recommends $packages"
    if ! command -v apt-get >/dev/null; then
        die "these are missing, and this is no Debian or Ubuntu" \
            "your system's packages of what Debian calls: $packages"
    elif ! may_become_root; then
        die "these are missing, and neither root nor sudo without a password is at hand" "$remedy"
    fi
    # shellcheck disable=SC2046,SC2086 # words are meant to be split
    run_logged "$log" "system packages ($packages)" $(root_prefix) env DEBIAN_FRONTEND=noninteractive \
        sh -c "apt-get update && apt-get install -y --no-install-recommends $packages" ||
        die "apt-get failed" "$remedy"
    missing=$(missing_packages "$(find_python || true)" "$needs_petsc")
    [ -z "$missing" ] || die "still missing after installing $packages: $(echo "$missing" | paste -s -d ';')" \
        "a newer Debian (12) or Ubuntu (24.04), or DAEOSENS_PYTHON=<a Python 3.11 or newer>"
}
