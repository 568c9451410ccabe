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
    set -- "$first" --cgroup-parent "/$(basename "$directory")" "$@"
    ;;
esac
# crun refuses cgroups of both versions at once.
set -- --root "$directory/data/podman" --runroot "$directory/data/podman-run" --storage-driver overlay \
    --cgroup-manager cgroupfs --events-backend file --runtime runc "$@"
test "$inspect" || exec podman "$@"
podman "$@" | python3 -c '
import json, sys
found = json.load(sys.stdin)
found = found[0] if isinstance(found, list) else found
found["NetworkSettings"]["Networks"] = found["NetworkSettings"].get("Networks") or {}
print(json.dumps(found))'
