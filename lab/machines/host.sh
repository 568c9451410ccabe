# Process 1 of a host: makes its file system, then becomes its sshd. See hosts.py.
# usage: sh -eu host.sh NAME ADDRESS DIRECTORY
name=$1 address=$2 directory=$3 root=$3/$1 here=$(dirname "$0")

hostname "$name"
# Every Linux has it. That of the machine may be made for other networks: bbr gets three quarters of a link of `tbf`.
echo reno >/proc/sys/net/ipv4/tcp_congestion_control
mount -t tmpfs -o mode=755,size=100g "$name" "$root" # as much as jobs may ask for: by default 2 GB each
cd "$root"
mkdir -p usr dev proc sys run/sshd root scratch tmp var/tmp old
chmod 1777 tmp var/tmp
cp -a /etc etc
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >etc/hosts
sed -i 's/^root:[^:]*/root:*/' etc/shadow # sshd lets nobody in whose account is locked
cp "$directory/key.pub" run/sshd/authorized_keys
cp "$directory/$name.key" run/sshd/host_key
cp "$here/sshd_config" run/sshd/config
mount -o bind,ro /usr usr
for link in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$link" ]; then
        cp -P "/$link" .
    elif [ -d "/$link" ]; then
        mkdir "$link"
        mount -o bind,ro "/$link" "$link"
    fi
done
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
# Now, because it may lie in there.
mkdir -p ".$directory/shared"
mount --bind "$directory/shared" ".$directory/shared"
mount --rbind /sys sys
mount -t proc proc proc
pivot_root . old
umount -l /old
rmdir /old
until ip addr show dev eth0 2>/dev/null | grep -q "$address"; do sleep 0.02; done
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec /usr/sbin/sshd -D -e -f /run/sshd/config -o "SetEnv=PATH=$path"
