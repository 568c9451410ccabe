#!/bin/sh
# Make the virtual environment with StreamFlow-IO in it, and what that needs: a C compiler, Rust, Python's venv; with the
# extra `test` also Node.js, for the JavaScript in the CWL of the tests.
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
apt_update() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    [ -n "$apt_updated" ] || { apt-get update -qq; apt_updated=1; }
}

apt_install() {
    apt_update || return 1
    echo "setup: installing $*"
    # .ci/run may install other packages at the same time.
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "$@" \
        >/dev/null
}

at_least() { # at_least MINIMUM VERSION
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

rust_version() {
    rustc --version 2>/dev/null | cut -d' ' -f2
}

# Distributions have several versions of Rust side by side: take the first that is new enough.
install_rust() {
    apt_update || return 1
    for package in rustc:cargo rustc-web:cargo-web rustc-1.85:cargo-1.85 rustc-1.89:cargo-1.89; do
        candidate=$(apt-cache policy "${package%:*}" | sed -n 's/^  Candidate: \([0-9.]*\).*/\1/p')
        [ -n "$candidate" ] && at_least "$rust_minimum" "$candidate" || continue
        apt_install "${package%:*}" "${package#*:}"
        # Packages with a version in their name install binaries with it, too, beside an older cargo.
        suffix=${package%:*}; suffix=${suffix#rustc}
        [ -x "/usr/bin/cargo$suffix" ] || suffix=
        mkdir -p "$venv/rust"
        ln -sf "/usr/bin/cargo$suffix" "$venv/rust/cargo"
        ln -sf "/usr/bin/rustc$suffix" "$venv/rust/rustc"
        return 0
    done
    return 1
}

# What belongs to the distribution's rustc that is used: rustfmt and rust-clippy, rustfmt-web and rust-web-clippy, ...
install_rust_lint() {
    package=$(dpkg -S "$(readlink -f "$(command -v rustc)")" 2>/dev/null | cut -d: -f1) || return 1
    [ -n "$package" ] && apt_install "rustfmt${package#rustc}" "rust${package#rustc}-clippy"
}

command -v "$python" >/dev/null || apt_install python3 || missing Python python3
"$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || missing "Python's venv" python3-venv
command -v cc >/dev/null || apt_install gcc libc6-dev || missing "a C compiler" "gcc libc6-dev"
case ",${2:-}," in
    *,test,*)
        command -v node >/dev/null || command -v nodejs >/dev/null || apt_install nodejs || missing Node.js nodejs
        ;;
esac
mkdir -p "$venv"
PATH=$(cd "$venv" && pwd)/rust:$HOME/.cargo/bin:$PATH # what install_rust links, then what rustup installed
version=$(rust_version)
if [ -z "$version" ] || ! at_least "$rust_minimum" "$version"; then
    install_rust || {
        echo "setup: Rust $rust_minimum or newer is missing${version:+ (found $version)}: see https://rustup.rs" >&2
        exit 1
    }
fi

case ",${2:-}," in
    *,lint,*)
        { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || install_rust_lint || {
            echo "setup: rustfmt and clippy are missing: rustup component add rustfmt clippy" >&2
            exit 1
        }
        ;;
esac

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing StreamFlow and StreamFlow-IO into $venv (about a minute; it builds sfio-node)"
# Built while pip downloads: pip then finds it done, or waits for it. What is wrong is told by pip.
cargo build --profile quick --quiet --manifest-path node/Cargo.toml 2>/dev/null &
building=$!
trap 'kill "$building" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
# --use-pep517: without it older versions of pip warn of packages that have no wheel. Tests compile what they import,
# which is a part of it.
"$venv/bin/python" -m pip install ${2:+--no-compile} --quiet --disable-pip-version-check --use-pep517 --editable ".$extras"
