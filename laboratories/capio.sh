#!/bin/bash
# laboratories/capio.sh PREFIX: builds CAPIO from its sources, and installs it there. See capio.py.
# CAPIO_SOURCES: a directory of bare git repositories OWNER+NAME/repo, instead of GitHub. CAPIO_REVISION: of CAPIO.
set -euo pipefail
prefix=$(realpath -m "$1"); work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
get() {  # OWNER NAME REVISION DIRECTORY
  local from=https://github.com/$1/$2.git
  [ -z "${CAPIO_SOURCES:-}" ] || from=$CAPIO_SOURCES/$1+$2/repo
  git clone -q "$from" "$work/$4" && git -C "$work/$4" -c advice.detachedHead=false checkout -q "$3"
}
get High-Performance-IO capio "${CAPIO_REVISION:-07427e39}" capio
get High-Performance-IO CAPIO-CL v1.4.1 capio_cl
get Taywee args 6.4.7 args
get danielaparker jsoncons v1.8.1 jsoncons
get marzer tomlplusplus v3.4.0 toml
settings=$work/capio/capio/posix/syscall_intercept/CMakeLists.txt
if ! get alpha-unito syscall_intercept 7dbdf6ab9c576f96843ef2553b7efc7d15cf66b4 syscall_intercept 2>/dev/null; then
  # CAPIO's fork is not to be had: pmem's, with the one thing that x86-64 needs of it: hooks after a clone without a stack, too.
  rm -rf "$work/syscall_intercept"; get pmem syscall_intercept ca4b135 syscall_intercept
  python3 - "$work/syscall_intercept/src/intercept.c" <<'P'
import sys
path = sys.argv[1]; text = open(path).read()
end = "\tintercept_log_syscall(patch, &desc, KNOWN, result);\n\n\treturn (struct wrapper_ret){ .rax = result, .rdx = 1 };\n}\n"
assert text.count(end) == 1
text = text.replace(end, "\tif (forward_to_kernel && (desc.nr == SYS_clone || desc.nr == SYS_clone3)) {\n\t\tcontext->rax = result;\n\t\tintercept_routine_post_clone(context);\n\t}\n" + end)
text = text.replace("struct wrapper_ret\nintercept_routine(struct context", "struct wrapper_ret intercept_routine_post_clone(struct context *);\nstruct wrapper_ret\nintercept_routine(struct context", 1)
open(path, "w").write(text)
P
  git -C "$work/syscall_intercept" -c user.name=l -c user.email=l@l commit -qam hooks
fi
revision=$(git -C "$work/syscall_intercept" rev-parse HEAD)
sed -i "s|https://github.com/alpha-unito/syscall_intercept.git|file://$work/syscall_intercept|; s|7dbdf6ab[0-9a-f]*|$revision|" "$settings"
cmake -S "$work/capio" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DFETCHCONTENT_SOURCE_DIR_CAPIO_CL="$work/capio_cl" -DFETCHCONTENT_SOURCE_DIR_ARGS="$work/args" \
  -DFETCHCONTENT_SOURCE_DIR_JSONCONS="$work/jsoncons" -DFETCHCONTENT_SOURCE_DIR_TOMLPLUSPLUS="$work/toml" > "$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
cmake --build "$work/build" -j"$(nproc)" >> "$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
cmake --install "$work/build" >> "$work/log" 2>&1
