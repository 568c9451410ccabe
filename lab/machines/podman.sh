# podman as `docker`: of what `docker inspect` says StreamFlow needs a little more. See containers.py.
# usage: sh podman.sh DIRECTORY ARGUMENT...
directory=$1
shift
export CONTAINERS_CONF="$directory/containers.conf"
inspect=
case $1 in
inspect) test "$2" != --format || inspect=1 ;;
run | create)
    first=$1
    shift
    test "$(id -u)" != 0 || set -- --cgroup-parent "/$(basename "$directory")" "$@"
    set -- "$first" "$@"
    ;;
esac
if test "$(id -u)" = 0; then
    set -- --root "$directory/data/podman" --runroot "$directory/data/podman-run" "$@"
else # In its containers there is no user but one, who is root there.
    export XDG_RUNTIME_DIR="$HOME"
    set -- --root "$HOME/podman" --runroot "$HOME/podman-run" --storage-opt ignore_chown_errors=true "$@"
fi
# crun refuses cgroups of both versions at once.
set -- --storage-driver overlay --cgroup-manager cgroupfs --events-backend file --runtime runc "$@"
test "$inspect" || exec podman "$@"
podman "$@" | python3 -c '
import json, sys
found = json.load(sys.stdin)
found = found[0] if isinstance(found, list) else found
found["NetworkSettings"]["Networks"] = found["NetworkSettings"].get("Networks") or {}
print(json.dumps(found))'
