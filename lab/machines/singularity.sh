# A stand-in for Singularity; not Singularity. It knows what StreamFlow calls: instances, of directories as images, in
# namespaces of mounts and processes of their own; `exec` in them is a child of its caller, without a daemon. See containers.py.
# usage: sh -eu singularity.sh DIRECTORY ARGUMENT...
set -eu
home=$1/data/singularity
command=${2-}
shift 2
# An ordinary user has them in a user namespace, where nobody else is mapped: others are 65534 in there.
own= enter=
test "$(id -u)" = 0 || own="--user --map-current-user --keep-caps" enter="--user --preserve-credentials"

skip_options() { # sets `binds`, and `skipped`: how many words
    binds= skipped=0
    while case ${1-} in -*) true ;; *) false ;; esac; do
        words=1
        case $1 in
        --bind) binds="$binds $2" words=2 ;;
        --home | --env-file | --network | --scratch | --workdir) words=2 ;;
        esac
        shift $words
        skipped=$((skipped + words))
    done
}

list_instances() {
    separator=
    printf '{"instances": ['
    for pid in "$home"/instances/*/pid; do
        number=$(cat "$pid" 2>/dev/null) && test -n "$number" || continue # it is being started, or stopped
        name=$(basename "$(dirname "$pid")")
        printf '%s{"instance": "%s", "pid": %s, "img": "", "ip": ""}' "$separator" "$name" "$number"
        separator=,
    done
    echo ']}'
}

# Process 1 of an instance: start_inside IMAGE INSTANCE BIND...
inside='
image=$1 instance=$2 root=$2/root
shift 2
mount -t overlay -o "lowerdir=$image,upperdir=$instance/upper,workdir=$instance/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
for bind; do
    mkdir -p "$root/${bind#*:}"
    mount --bind "${bind%%:*}" "$root/${bind#*:}"
done
cd "$root"
touch "$instance/ready"
exec chroot . sh -c "while :; do sleep 3600; done"'

start_instance() { # IMAGE NAME BIND...
    image=$home/images/$(basename "${1#docker://}" | cut -d : -f 1)
    instance=$home/instances/$2
    shift 2
    test -d "$image" || { echo "no image $image" >&2; exit 1; }
    mkdir -p "$instance/root" "$instance/upper" "$instance/work"
    # It ends with its keeper, which is not bound to who has started it.
    setsid unshare $own --mount --pid --fork --kill-child --uts --ipc sh -euc "$inside" sh "$image" "$instance" "$@" \
        >"$instance/log" 2>&1 </dev/null &
    keeper=$!
    echo $keeper >"$instance/keeper"
    until test -e "$instance/ready"; do
        kill -0 $keeper 2>/dev/null || { cat "$instance/log" >&2; exit 1; }
        sleep 0.02
    done
    read -r pid _ <"/proc/$keeper/task/$keeper/children" || :
    until test "$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c -11)" = "sh -c while"; do sleep 0.02; done
    echo "$pid" >"$instance/pid"
}

stop_instance() { # NAME
    kill -KILL "$(cat "$home/instances/$1/keeper")"
    while kill -0 "$(cat "$home/instances/$1/pid")" 2>/dev/null; do sleep 0.02; done
    chmod u+rwx "$home/instances/$1/work/work"
    rm -rf "$home/instances/$1"
}

case $command in
import) # ARCHIVE NAME; of the laboratory alone
    mkdir -p -m 1777 "$home/instances"
    mkdir -p "$home/images/$2"
    tar -x -f "$1" -C "$home/images/$2"
    ;;
--version) echo "stand-in for singularity" ;;
buildcfg) echo "CONF_FILE=/dev/null" ;;
exec)
    skip_options "$@"
    shift $skipped
    read -r pid <"$home/instances/${1#instance://}/pid"
    shift
    exec nsenter $enter --target "$pid" --mount --pid --ipc --uts --root --wd env -i HOME=/root \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ;;
instance)
    action=$1
    shift
    skip_options "$@"
    shift $skipped
    case $action in
    list) list_instances ;;
    start) start_instance "$1" "$2" $binds ;;
    stop) stop_instance "$1" ;;
    esac
    ;;
*) echo "the stand-in for singularity does not know: $command $*" >&2; exit 1 ;;
esac
