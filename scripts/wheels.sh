#!/bin/sh
# Build a wheel for each architecture that is named, with a sfio-node that is static against musl. That program runs on any
# Linux, so that the wheel has the tags of manylinux and of musllinux. The wheels are put into a directory.
# Needs rustup, and for another architecture than this one a C compiler for it.
# Usage: scripts/wheels.sh VENV DIRECTORY ARCHITECTURE...
set -eu
trap 'rm -f NOTICES.txt' EXIT

python=$1/bin/python
directory=$2
shift 2
here=$(uname -m)

for architecture; do
    target=$architecture-unknown-linux-musl
    if ! [ -d "$(rustc --print target-libdir --target "$target")" ]; then
        rustup target add "$target" || {
            echo "wheels: Rust has no $target: rustup target add $target" >&2
            exit 1
        }
    fi
    # For the C in ring.
    [ "$architecture" = "$here" ] && compiler=cc || compiler=$architecture-linux-gnu-gcc
    command -v "$compiler" >/dev/null || {
        echo "wheels: $compiler is missing. As root: apt-get install gcc-$(echo "$architecture" | tr _ -)-linux-gnu" >&2
        exit 1
    }
    rm -rf build/lib* build/bdist* build/scripts* # of another architecture
    "$python" -m scripts.notices NOTICES.txt "$target"
    env "CC_$(echo "$target" | tr - _)=$compiler" "CARGO_BUILD_TARGET=$target" \
        "$python" -m pip wheel --quiet --no-deps --wheel-dir "$directory" .
done
