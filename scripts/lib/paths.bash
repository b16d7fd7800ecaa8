# Where things are; sourced by setup, test, demo and check.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$(realpath -m "${DAEOSENS_VENV:-$root/.venv}")
# shellcheck disable=SC2034 # used by setup
cache=${DAEOSENS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/daeosens}
cache=$(realpath -m "$cache")
stamp=$venv/daeosens-setup # what the environment was made from; written last

# Run programs of the environment from here on, under the settings for mpiexec.
enter_environment() {
    PATH=$venv/bin:$PATH
    VIRTUAL_ENV=$venv
    # petsc4py brings its own; another one named by the user's shell would only confuse it
    if grep -q '^petsc built' "$stamp"; then
        unset PETSC_DIR PETSC_ARCH
    elif grep -q '^petsc active' "$stamp"; then
        PATH=$PATH:$(dirname "$(awk '$1 == "python" {print $2}' "$stamp")") # its programs are used too
    fi
    local name value
    while IFS='=' read -r name value; do
        case $name in
            '' | '#'*) ;;
            *) [ -n "${!name:-}" ] || export "$name=$value" ;;
        esac
    done <"$root/scripts/mpi-environment"
    export PATH VIRTUAL_ENV
}
