# Sourced by the scripts next to it. `bootstrap server,gguf,client` makes .venv hold this project with those
# extras, in the versions of constraints.txt, and sets PYTHON. Does nothing but compare a stamp once that is so.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
PYTHON=$VENV/bin/python3

_say() { echo "bootstrap: $*" >&2; }

# 3.11 and 3.12 first: numpy below 2 has no ready-made package for 3.13.
_find_python() {
    local name
    for name in python3.11 python3.12 python3 python3.13; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    _say "no Python 3.11 to 3.13 with the venv module found; 3.11 or 3.12 is best"
    return 1
}

# The place counts too: an environment that was moved points its editable install to where it was.
_wanted_stamp() {
    { cat "$ROOT/pyproject.toml" "$ROOT/constraints.txt"; echo "$1 $ROOT"; } | sha256sum
}

_up_to_date() {
    [[ -x $PYTHON && ! -e $VENV/.installing && -f $1 && $(<"$1") == "$2" ]]
}

# An interrupted installation can leave packages that pip takes for whole, so such an environment is made anew.
_make_environment() {
    local python
    if [[ -e $VENV/.installing ]]; then
        _say "the last installation was interrupted; starting afresh"
    elif "$PYTHON" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(_find_python) || return 1
    _say "creating .venv with $("$python" --version)"
    rm -rf "$VENV" && "$python" -m venv "$VENV"
}

_install() {
    local extras=$1 stamp=$2 wanted=$3
    _up_to_date "$stamp" "$wanted" && return  # another one did it while this one waited
    _make_environment || return 1
    touch "$VENV/.installing"
    _say "installing this project with [$extras] into .venv (minutes the first time, seconds later)"
    # pip compiles on one core, which takes half a minute of the whole.
    if ! "$PYTHON" -m pip install -qq --disable-pip-version-check --no-compile \
        -c "$ROOT/constraints.txt" -e "$ROOT[$extras]" >&2; then
        rm "$VENV/.installing"  # pip ended in order, and undid what it had begun
        _say "pip failed; the reason is above"
        return 1
    fi
    # Some packages hold files for other Pythons, which do not compile: no failure.
    "$PYTHON" -m compileall -qq -j 0 "$VENV/lib" >/dev/null 2>&1 || true
    echo "$wanted" >"$stamp"
    rm "$VENV/.installing"
    _say "done"
}

bootstrap() {
    local extras=$1 stamp="$VENV/.stamp-${1//,/-}" wanted
    wanted=$(_wanted_stamp "$extras")
    _up_to_date "$stamp" "$wanted" && return
    mkdir -p "$ROOT/.cache"
    (
        flock --nonblock 9 || { _say "waiting for another installation"; flock 9; }
        _install "$extras" "$stamp" "$wanted"
    ) 9>"$ROOT/.cache/bootstrap.lock"
}
