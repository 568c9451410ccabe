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

compiler_for() { # compiler_for ARCHITECTURE
    [ "$1" = "$here" ] && echo cc || echo "$1-linux-gnu-gcc"
}

# All that is missing is said before a build, which takes minutes.
for architecture; do
    target=$architecture-unknown-linux-musl
    if ! [ -d "$(rustc --print target-libdir --target "$target")" ]; then
        rustup target add "$target" || {
            echo "wheels: Rust has no $target: rustup target add $target" >&2
            exit 1
        }
    fi
    # ring has C, which includes headers of the C library.
    compiler=$(compiler_for "$architecture")
    echo "#include <stdint.h>" | "$compiler" -fsyntax-only -x c - 2>/dev/null || {
        case $compiler in
            aarch64*) packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
            x86_64*) packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;;
            *) packages="gcc libc6-dev" ;;
        esac
        echo "wheels: $compiler, or its C library, is missing. As root: apt-get install $packages" >&2
        exit 1
    }
done

for architecture; do
    target=$architecture-unknown-linux-musl
    compiler=$(compiler_for "$architecture")
    rm -rf build/lib* build/bdist* build/scripts* # of another architecture
    "$python" -m scripts.notices NOTICES.txt "$target"
    env "CC_$(echo "$target" | tr - _)=$compiler" "CARGO_BUILD_TARGET=$target" \
        "$python" -m pip wheel --quiet --no-deps --wheel-dir "$directory" .
done
