# Telling what goes on: messages, progress of a long command, the real error when one fails.

say() { printf '%s\n' "$*"; }

# die WHAT REMEDY: one error, in the form of the library's own, and the end.
die() {
    printf '\nerror: %s\n  try: %s\n' "$1" "$2" >&2
    exit 1
}

elapsed() { printf '%d:%02d' $((($1) / 60)) $((($1) % 60)); }

# What the log says just now: a count while PETSc compiles its files, else its last line.
phase() {
    local compiled
    compiled=$(grep -cE '^ *(CC|CXX) ' "$1" || true)
    if [ "$compiled" -gt 0 ] && tail -n 1 "$1" | grep -qE '^ *(CC|CXX) '; then
        printf '%d files compiled' "$compiled"
    else
        tail -c 2000 "$1" | tr '\r' '\n' | grep -E '[[:alnum:]]' | tail -n 1 | sed 's/^ *//' | cut -c 1-70 || true
    fi
}

running=""          # process group of the command that run_logged waits for
half_made=""        # folder that makes no sense unfinished

# For the EXIT trap: stop what runs, remove what is half made.
clean_up() {
    [ -z "$running" ] || kill -- "-$running" 2>/dev/null || true
    [ -z "$half_made" ] || remove "$half_made"
}

# Remove folders; an orphan of an interrupted build may still be writing there: it soon fails.
remove() {
    local attempt
    for attempt in 1 2 3 4 5 6; do
        rm -rf "$@" 2>/dev/null && return
        sleep "$attempt"
    done
    rm -rf "$@"
}

# run_logged LOG WHAT COMMAND...: run a command with its output in LOG, show the time it takes and
# what it is at.  Its status is returned; on failure the end of the log is printed.
run_logged() {
    local log=$1 what=$2 start=$SECONDS status=0 told=0 now
    shift 2
    mkdir -p "$(dirname "$log")"
    # a process group of its own, to be stopped as one; no lock held, so that none outlives us
    setsid "$@" >"$log" 2>&1 </dev/null 9>&- &
    running=$!
    while kill -0 "$running" 2>/dev/null; do
        now=$((SECONDS - start))
        if [ -t 1 ]; then
            printf '\r\033[K  %s  %s: %s' "$(elapsed $now)" "$what" "$(phase "$log")"
        elif [ $((now - told)) -ge 30 ]; then
            told=$now
            say "  $(elapsed $now)  $what: $(phase "$log")"
        fi
        sleep 0.2
    done
    wait "$running" || status=$?
    running=""
    [ ! -t 1 ] || printf '\r\033[K'
    if [ "$status" -eq 0 ]; then
        say "  $(elapsed $((SECONDS - start)))  $what: done"
    else
        {
            printf '\n%s failed (status %d) after %s. The end of %s:\n' \
                "$what" "$status" "$(elapsed $((SECONDS - start)))" "$log"
            tail -n 25 "$log" | sed 's/^/  | /'
        } >&2
    fi
    return "$status"
}

failed=()

# step NAME COMMAND...: run it, and go on after a failure, so that one run shows all of them.
step() {
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
}

# The end of a script made of steps: status 1, with their names, if any has failed.
conclude() {
    [ ${#failed[@]} -gt 0 ] || return 0
    printf '\nfailed: %s\n' "$(printf '%s; ' "${failed[@]}" | sed 's/; $//')" >&2
    exit 1
}
