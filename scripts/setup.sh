#!/bin/sh
# Make the virtual environment with StreamFlow-IO in it, and what that needs: a C compiler, Rust, Python's venv.
# As root on Debian or Ubuntu what is missing is installed; otherwise it is said what to install.
# Usage: scripts/setup.sh VENV [EXTRA,...]
set -eu

venv=$1
extras=${2:+[$2]}
python=${PYTHON:-python3}
rust_minimum=1.85

missing() {
    echo "setup: $1 is missing. As root: apt-get install $2" >&2
    exit 1
}

apt_updated=
apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    [ -n "$apt_updated" ] || { apt-get update -qq; apt_updated=1; }
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

at_least() { # at_least MINIMUM VERSION
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

rust_version() {
    rustc --version 2>/dev/null | cut -d' ' -f2
}

# Distributions have several versions of Rust side by side: take the first that is new enough.
install_rust() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    apt-get update -qq
    apt_updated=1
    for package in rustc:cargo rustc-web:cargo-web rustc-1.85:cargo-1.85 rustc-1.89:cargo-1.89; do
        candidate=$(apt-cache policy "${package%:*}" | sed -n 's/^  Candidate: \([0-9.]*\).*/\1/p')
        [ -n "$candidate" ] && at_least "$rust_minimum" "$candidate" || continue
        apt_install "${package%:*}" "${package#*:}"
        # Packages with a version in their name install binaries with it, too.
        suffix=${package%:*}; suffix=${suffix#rustc}
        if ! command -v cargo >/dev/null && [ -x "/usr/bin/cargo$suffix" ]; then
            mkdir -p "$venv/rust"
            ln -sf "/usr/bin/cargo$suffix" "$venv/rust/cargo"
            ln -sf "/usr/bin/rustc$suffix" "$venv/rust/rustc"
            PATH=$(cd "$venv/rust" && pwd):$PATH
        fi
        return 0
    done
    return 1
}

command -v "$python" >/dev/null || apt_install python3 || missing Python python3
"$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || missing "Python's venv" python3-venv
command -v cc >/dev/null || apt_install gcc libc6-dev || missing "a C compiler" "gcc libc6-dev"
[ -x "$HOME/.cargo/bin/cargo" ] && PATH=$PATH:$HOME/.cargo/bin
version=$(rust_version)
if [ -z "$version" ] || ! at_least "$rust_minimum" "$version"; then
    install_rust || {
        echo "setup: Rust $rust_minimum or newer is missing${version:+ (found $version)}: see https://rustup.rs" >&2
        exit 1
    }
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".$extras"
