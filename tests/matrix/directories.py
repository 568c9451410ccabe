"""The tables of programs that read a directory, and of programs that write one."""

from __future__ import annotations

from tests.matrix.programs import BASH, PYTHON, STREAMS, Expectation, Filler, Walker, stopped

#: Writes out/d: 5 regular files, one of them slowly, in two directories; a link and an empty directory.
#: Everything that is no regular file is there before the last file.
SLOW_DIRECTORY = """
mkdir -m 755 out/d
head -n 4000 "$DATA/words.txt" > out/d/a.txt
mkdir -m 750 out/d/sub
mkdir out/d/nothing
ln -s a.txt out/d/link
slow "$DATA/words.txt" > 'out/d/b with space.txt'
: > out/d/empty
tail -n 50 "$DATA/words.txt" > out/d/sub/c
seq 1000 > out/d/ü.txt
"""
FILES = 5


def _walker(name: str, script: str, *needs: str, no_update: Expectation = STREAMS) -> Walker:
    needed = needs or (script.split()[0],)
    return Walker(name=name, script=script.replace("{}", '"$IN"'), needs=needed, no_update=no_update)


def _bash(name: str, script: str) -> Walker:
    return Walker(name=f"bash: {name}", script=script.replace("{}", '"$IN"'), needs=("bash",), interpreter=BASH)


def _python(name: str, script: str) -> Walker:
    script = f"import os, sys, pathlib\npath = os.environ['IN']\n{script}"
    return Walker(name=f"Python: {name}", script=script, needs=("python3",), interpreter=PYTHON)


WALKERS: tuple[Walker, ...] = (
    _walker("ls", "ls -A {}"),
    _walker("ls -R", "ls -RA {}"),
    _walker("ls -l", "ls -lR --time-style=+ {} | awk '$1 != \"total\" { print $1, $5, $6, $7, $8 }'", "ls", "awk"),
    _walker("find", "find {} | sort", "find", "sort"),
    _walker("find -size", "find {} -type f -size +20k | sort", "find", "sort"),
    _walker("find -newer", "find {} -type f -newer {}/a.txt | sort", "find", "sort"),
    _walker("find -printf", "find {} -printf '%P %y %m %l\\n' | sort", "find", "sort"),
    _walker("find | xargs", "find {} -type f -print0 | sort -z | xargs -0 cat", "find", "sort", "xargs"),
    _walker("tar", "tar --sort=name --mtime=@1 -cf all.tar -C {} .; tar -xf all.tar", "tar"),
    _walker("tar, listed", "tar --sort=name -cf all.tar {}; tar -tf all.tar; rm all.tar", "tar"),
    _walker("cp -r", "cp -r {} copy", "cp"),
    _walker("cp -a", "cp -a {}/. copy", "cp"),
    _walker("cp *", "mkdir copy; cp {}/*.txt copy", "cp"),
    _walker("rsync -a", "rsync -a {}/ copy", "rsync"),
    _walker("du", "du -ab {} | awk '!/d$|sub$|nothing$/' | sort", "du", "sort", "awk"),
    _walker("stat", "stat -c '%b %s %y %z' {} > before; ls -A {}; stat -c '%b %s %y %z' {} | cmp - before; rm before"),
    _walker("sha256sum *", "sha256sum {}/*.txt {}/sub/*", "sha256sum"),
    _walker("cat *", "cat {}/*.txt", "cat"),
    _walker("cat NAMES", "cat {}/ü.txt {}/a.txt {}/sub/c", "cat"),
    _walker("test NAME", "test -s {}/sub/c; test ! -e {}/never; echo right", "test"),
    _walker("cd, cat NAME", "cd {}; cat sub/c 'b with space.txt' link", "cat"),
    _walker("grep -r", "grep -rc word1 {} | sort", "grep", "sort"),
    _walker("grep -R", "grep -Rc word1 {} | sort", "grep", "sort"),
    _walker("diff -r", 'diff -r {} "$DATA/directory" > differences || true; sort differences', "diff", "sort"),
    _walker("zip -r", "zip -qr all.zip {}; unzip -q -d copy all.zip; rm all.zip", "zip", "unzip"),
    _walker("wc", "wc -l {}/*.txt", "wc"),
    _walker("sort *", "sort -m {}/a.txt {}/b*.txt", "sort"),
    _walker("git diff", 'git --no-pager diff --no-index --stat {} "$DATA/directory" || true', "git"),
    _walker("git hash-object", "git hash-object {}/a.txt {}/sub/c", "git"),
    _walker(
        "mv",
        "mv {} moved; find moved -type f | sort | xargs -d '\\n' cat",
        "mv",
        "find",
        "xargs",
        no_update=stopped("moves the directory away"),
    ),
    _bash("glob", 'for file in {}/*; do echo "$file"; done'),
    _bash("globstar", 'shopt -s globstar; for file in {}/**; do echo "$file"; done'),
    _bash("while read", 'ls {} | while read -r name; do if [ -f {}"/$name" ]; then wc -c < {}"/$name"; fi; done'),
    _python("listdir", "print(sorted(os.listdir(path)))"),
    _python(
        "scandir", "print(sorted((e.name, e.is_file(), e.stat().st_size * e.is_file()) for e in os.scandir(path)))"
    ),
    _python("walk", "for top, d, f in sorted(os.walk(path)): print(top, sorted(d), sorted(f))"),
    _python("rglob", "for p in sorted(pathlib.Path(path).rglob('*')): print(p, p.is_file() and len(p.read_bytes()))"),
    _python("glob", "import glob\nprint([len(open(p).read()) for p in sorted(glob.glob(path + '/*.txt'))])"),
    _python("copytree", "import shutil\nshutil.copytree(path, 'copy', symlinks=True)"),
    _python(
        "dir_fd",
        "d = os.open(path, os.O_RDONLY)\nprint(sorted(os.listdir(d)), os.read(os.open('ü.txt', 0, dir_fd=d), 9))",
    ),
    _python(
        "fwalk",
        "for top, d, f, fd in os.fwalk(path):\n    d.sort()\n"
        "    print(sorted((n, os.stat(n, dir_fd=fd).st_size) for n in f))",
    ),
)

FILLERS: tuple[Filler, ...] = (
    Filler(name="sh", script=SLOW_DIRECTORY, needs=("sh",)),
    Filler(name="mv", script='mkdir new; slow "$DATA/words.txt" > new/words; mv new out/d', needs=("mv",)),
    Filler(
        name="cp -r",
        script='slow "$DATA/words.txt" > words; mkdir d; cp words d/1; cp words d/2; cp -r d out/d',
        needs=("cp",),
    ),
    Filler(name="tar x", script='mkdir out/d; slow "$DATA/words.tar" | tar -x -C out/d', needs=("tar",), data="tar"),
    Filler(
        name="unzip", script='slow "$DATA/words.zip" > x.zip; unzip -q -d out/d x.zip', needs=("unzip",), data="zip"
    ),
    Filler(name="split", script='mkdir out/d; slow "$DATA/words.txt" | split -l 1000 - out/d/x', needs=("split",)),
    Filler(name="rsync -a", script='mkdir d; slow "$DATA/words.txt" > d/x; rsync -a d out/', needs=("rsync",)),
    Filler(
        name="awk",
        script='mkdir out/d; slow "$DATA/words.txt" | awk \'{ print > ("out/d/" substr($2, 5, 1)) }\'',
        needs=("awk",),
    ),
    Filler(
        name="csplit",
        script='mkdir out/d; slow "$DATA/words.txt" | csplit -s -f out/d/x - 1000 4000 7000',
        needs=("csplit",),
    ),
    Filler(
        name="git init",
        script='slow "$DATA/words.txt" > w; git init -q out/d; cp w out/d; git -C out/d add w; rm -f out/d/.git/index',
        needs=("git",),
    ),
)
#: Lists what a filler has written, and reads it.
EXPLORE = 'find "$IN" -printf "%P %y\\n" | sort; find "$IN" -type f | sort | xargs -d "\\n" cat'
