# Process 1 of a container of a pod: makes its file system, then becomes its command. See pods.py.
# usage: sh -eu pod.sh ROOT IMAGE rw|ro [SOURCE TARGET rw|ro]... -- COMMAND [ARGUMENT]...
# IMAGE is an archive, or none: what is installed here.
root=$1 image=$2 mode=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir -p dev proc sys tmp var/tmp root run old
chmod 1777 tmp var/tmp
if [ "$image" ]; then
    tar -x -f "$image"
else
    mkdir etc usr
    mount -o bind,ro /etc etc
    mount -o bind,ro /usr usr
    for link in bin sbin lib lib32 lib64 libx32; do
        test ! -L "/$link" || cp -P "/$link" .
        test -L "/$link" || test ! -d "/$link" || { mkdir "$link" && mount -o bind,ro "/$link" "$link"; }
    done
fi
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount --rbind /sys sys
mount -t proc proc proc
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "./$2"; else mkdir -p "./$(dirname "$2")" && touch "./$2"; fi
    mount --bind "$1" "./$2"
    test "$3" = rw || mount -o remount,bind,ro "./$2"
    shift 3
done
shift
test "$mode" = rw || mount -o remount,bind,ro "$root" # its own mount; volumes have theirs
cd "$root"
pivot_root . old
umount -l /old
echo ready
exec "$@" </dev/null >/dev/null 2>&1
