"""The table of consumers: programs that read one file."""

from __future__ import annotations

from dataclasses import replace

from tests.matrix.programs import (
    BASH,
    NODE,
    PERL,
    PYTHON,
    STREAMS,
    WAITS,
    Consumer,
    Expectation,
    fails,
    fails_in_rehearsal,
    found_by_rehearsal,
    held,
    stopped,
    unfit,
)

SEEKS = fails("seeks")
MAPS = fails("maps the file into memory")
TWICE = stopped("opens it twice")
_REST = "leaves the rest to another program"
SIZE = unfit("asks its open file for the size")


def _shell(
    name: str,
    script: str,
    *needs: str,
    data: str = "words",
    stream: Expectation = STREAMS,
    gate: Expectation = STREAMS,
    both: bool = True,
) -> list[Consumer]:
    """``{}`` in ``script`` is the input; with ``both``, also as ``name <``, reading standard input."""
    needed = needs or (script.split()[0],)
    named = script.replace("{}", '"$IN"')
    consumer = Consumer(name=name, script=named, needs=needed, data=data, stream=stream, gate=gate)
    if not both:
        return [consumer]
    without = script.replace("{}", "").strip()
    return [consumer, Consumer(name=f"{name} <", script=without, needs=needed, data=data, stdin=True)]


def _named(
    name: str,
    script: str,
    *needs: str,
    data: str = "words",
    stream: Expectation = STREAMS,
    gate: Expectation = STREAMS,
) -> list[Consumer]:
    """A program that is given the name of its input, and reads no standard input."""
    return _shell(name, script, *needs, data=data, stream=stream, gate=gate, both=False)


def _bash(name: str, script: str, stream: Expectation = STREAMS, gate: Expectation = STREAMS) -> Consumer:
    return Consumer(name=f"bash: {name}", script=script, needs=("bash",), interpreter=BASH, stream=stream, gate=gate)


def _python(name: str, script: str, data: str = "words", stream: Expectation = STREAMS) -> Consumer:
    script = f"import os, sys\npath = os.environ['IN']\n{script}"
    return Consumer(
        name=f"Python: {name}", script=script, needs=("python3",), interpreter=PYTHON, data=data, stream=stream
    )


_COMPILED = [
    Consumer(name=f"{language}: {mode}", script=f'{tool} {mode} "$IN"', needs=(tool,), stream=stream)
    for language, tool, modes in (
        (
            "C",
            "reader",
            {
                "read": STREAMS,
                "stdio": STREAMS,
                "getline": STREAMS,
                "readv": STREAMS,
                "thread": STREAMS,
                "openat": STREAMS,
                "openat2": STREAMS,
                "chdir": STREAMS,
                "access": STREAMS,
                "statx": WAITS,
                "io_uring": STREAMS,
                "exists": WAITS,
                "fseek": SEEKS,
                "pread": SEEKS,
                "mmap": MAPS,
                "stat": SIZE,
            },
        ),
        ("C, static", "reader-static", {"read": STREAMS, "stdio": STREAMS, "mmap": MAPS}),
        ("C++", "streams", {"read": STREAMS}),
        ("Go", "files-go", {"read": STREAMS, "lines": STREAMS, "mmap": MAPS}),
        ("Java", "files-java", {"stream": STREAMS, "lines": STREAMS, "mmap": MAPS}),
    )
    for mode, stream in modes.items()
]

_BASH = [
    _bash("redirection", 'cat < "$IN"'),
    _bash("while read", 'while read -r id word number; do echo "$word"; done < "$IN"'),
    _bash("while read, head -n 2000", 'head -n 2000 "$IN" | while read -r id rest; do echo "$id"; done'),
    _bash("mapfile", 'mapfile -t lines < "$IN"; echo "${#lines[@]} ${lines[100]}"'),
    _bash("$(< FILE)", 'text=$(< "$IN"); echo "${#text}"'),
    _bash("<( )", 'paste <(cut -d" " -f1 "$IN") "$DATA/words.txt"'),
    _bash("exec 3<", 'exec 3< "$IN"; read -r line <&3; echo "$line"; cat <&3'),
    _bash("test -e, then cat", 'if [ -e "$IN" ]; then cat "$IN"; else echo missing; fi', WAITS),
    _bash("test -s, then cat", 'if [ -s "$IN" ]; then cat "$IN"; else echo empty; fi', WAITS),
    _bash("test -f, then cat", 'if [ -f "$IN" ]; then cat "$IN"; else echo missing; fi', WAITS),
    _bash("until test -e", 'until [ -e "$IN" ]; do sleep 0.02; done; cat "$IN"', WAITS),
    _bash("/proc/self/cwd", 'cat "/proc/self/cwd/$IN"'),
    _bash("/dev/fd/3/..", 'd=${IN%/*}; exec 3< "$d"; cat "/dev/fd/3/../${d##*/}/${IN##*/}"'),
    _bash("linked directory", 'ln -s "${IN%/*}" also; cat "also/${IN##*/}"; rm also'),
    _bash("touch, then cat", 'touch -c "$IN"; cat "$IN"', WAITS),
    _bash("glob", 'shopt -s nullglob; for file in "${IN%/*}"/*; do cat "$file"; done', WAITS),
    _bash("cd, ..", 'cd "${IN%/*}"; cat "../${PWD##*/}/${IN##*/}"'),
    _bash("in the background", 'wc -l < "$IN" > lines & wait; cat lines'),
    _bash("link to it", 'ln -s "$IN" link; cat link'),
    _bash("twice", 'head -n 1 "$IN"; tail -n 1 "$IN"', TWICE),
    Consumer(name="sh: . FILE", script='. "./$IN"', needs=("sh",), data="script"),
    Consumer(name="sh FILE", script='sh "$IN"', needs=("sh",), data="script"),
    Consumer(name="execve", script='"./$IN"', needs=("sh",), data="script", stream=WAITS),
]

_PYTHON = [
    _python("read", "sys.stdout.write(open(path).read())"),
    _python("lines", "for line in open(path): sys.stdout.write(line[::-1])"),
    _python("raw", "f = open(path, 'rb', 0)\nwhile data := f.read(999): os.write(1, data)"),
    _python(
        "pathlib",
        "import pathlib\np = pathlib.Path(path)\nassert p.exists()\nprint(p.read_text().upper())",
        stream=WAITS,
    ),
    _python("mmap", "import mmap\nf = open(path)\nprint(mmap.mmap(f.fileno(), 0, prot=1)[-500:])", stream=MAPS),
    _python("seek", "f = open(path, 'rb')\nf.seek(-300, 2)\nprint(f.read())", stream=SEEKS),
    _python("pread", "f = os.open(path, 0)\nprint(os.read(f, 9), os.pread(f, 99, 999), os.read(f, 9))", stream=SEEKS),
    _python(
        "mmap of so many", "import mmap\nf = open(path)\nprint(mmap.mmap(f.fileno(), 500, prot=1)[:])", stream=MAPS
    ),
    _python("getsize", "print(os.path.getsize(path))", stream=WAITS),
    _python("shutil.copyfile", "import shutil\nshutil.copyfile(path, 'copy')", stream=WAITS),
    _python("sendfile", "f = open(path)\nwhile os.sendfile(1, f.fileno(), None, 1 << 20): pass", stream=MAPS),
    _python("hashlib", "import hashlib\nprint(hashlib.file_digest(open(path, 'rb', 0), 'sha1').hexdigest())"),
    _python("csv", "import csv\nprint(sum(int(row[2]) for row in csv.reader(open(path))))", data="csv"),
    _python("json", "import json\nprint(sum(json.loads(line)['id'] for line in open(path)))", data="json"),
    _python("gzip", "import gzip\nprint(len(gzip.open(path).read()))", data="gz"),
    _python("lzma", "import lzma\nprint(len(lzma.open(path).read()))", data="xz"),
    _python("zipfile", "import zipfile\nprint(len(zipfile.ZipFile(path).read('words.txt')))", data="zip", stream=SEEKS),
    _python("tarfile", "import tarfile\nprint(tarfile.open(path).getnames())", data="tar", stream=TWICE),
    _python("tarfile, r|", "import tarfile\nprint([m.name for m in tarfile.open(path, mode='r|')])", data="tar"),
    _python(
        "sqlite3",
        "import sqlite3\nprint(*sqlite3.connect(path).execute('select sum(id) from t'))",
        data="sqlite",
        stream=WAITS,
    ),
    _python(
        "threads",
        "import threading\nt = threading.Thread(target=lambda: print(open(path).read()))\nt.start()\nt.join()",
    ),
    _python(
        "fork", "pid = os.fork()\nif pid == 0: os._exit(print(open(path).read(), flush=True) or 0)\nos.waitpid(pid, 0)"
    ),
    _python("subprocess", "import subprocess\nsubprocess.run(['cat', path], check=True)"),
    Consumer(name="python FILE", script='python3 -IS "$IN"', needs=("python3",), data="module", stream=WAITS),
]

_LANGUAGES = [
    Consumer(
        name="Perl: lines",
        script='open(F, $ENV{IN}) or die "$!"; print scalar reverse while <F>',
        needs=("perl",),
        interpreter=PERL,
    ),
    Consumer(
        name="Perl: seek",
        script='open(F, $ENV{IN}) or die "$!"; $_ = <F>; print; seek(F, 9, 0) or die "$!"; $_ = <F>; print',
        needs=("perl",),
        interpreter=PERL,
        stream=SEEKS,
    ),
    Consumer(
        name="Perl: -s",
        script='open(F, $ENV{IN}) or die "$!"; sysread(F, $d, -s F); print $d',
        needs=("perl",),
        interpreter=PERL,
        stream=SIZE,
    ),
    Consumer(
        name="Node: readFileSync",
        script="process.stdout.write(require('fs').readFileSync(process.env.IN))",
        needs=("node",),
        interpreter=NODE,
    ),
    Consumer(
        name="Node: stream",
        script="require('fs').createReadStream(process.env.IN).pipe(process.stdout)",
        needs=("node",),
        interpreter=NODE,
    ),
    *_shell("awk", "awk '{ n += $3 } END { print n, NR }' {}"),
    *_shell("gawk", "gawk '{ n += $3 } END { print n, NR }' {}"),
    *_named("awk: getline", """awk -v f={} 'BEGIN { while ((getline line < f) > 0) print length(line) }'"""),
    *_shell("sed", "sed -n 's/word1/WORD/p' {}"),
    *_named("sed -i", "sed -i s/word/x/ {}; cat {}", stream=fails("edits in place")),
    *_shell("jq", "jq -c 'select(.id % 500 == 0)' {}", data="json"),
]

_COREUTILS = [
    *_shell("cat", "cat {}"),
    *_shell("tac", "tac {}"),
    *_named("dd", "dd if={} bs=1000 status=none"),
    Consumer(name="dd <", script="dd bs=1000 status=none", needs=("dd",), stdin=True),
    Consumer(name="dd skip=", script="dd bs=512 skip=100 status=none", needs=("dd",), stdin=True),
    *_named("dd iflag=direct", "dd if={} iflag=nocache bs=4096 status=none of=copy", "dd"),
    Consumer(name="tee <", script="tee copy", needs=("tee",), stdin=True),
    *_named("cp", "cp {} copy", stream=WAITS),
    *_named("cp -L --sparse=always", "cp -L --sparse=always {} copy", stream=WAITS),
    *_named("cp -rL", "cp -rL {} copy", stream=WAITS),
    *_named("mv", "mv {} moved; cat moved", stream=WAITS),
    *_named("ln", "ln -s {} link; cat link"),
    *_named("install", "install -m 600 {} copy", stream=WAITS),
    *_named("wc", "wc < {}", stream=unfit("pads its columns by the size of its input")),
    *_named("wc -c", "wc -c {}"),
    *_shell("wc -l", "wc -l {}"),
    *_shell("head", "head -n 5000 {}"),
    *_shell("head -c -", "head -c -1000 {}"),
    *_shell("tail", "tail -n 20 {}"),
    *_shell("tail -c +", "tail -c +150000 {}"),
    *_named("tail -c", "tail -c 100 {}"),
    *_shell("split", "split -l 2500 {}"),
    *_named("split -n", "split -n 3 {}", stream=fails("takes the size from stat")),
    *_shell("csplit", "csplit -s {} 100 4000", both=False),
    *_shell("sort", "sort -k 2 {}", stream=WAITS),
    *_named("sort -o", "sort -n -r -k 3 -o sorted {}", stream=WAITS),
    *_shell("uniq", "uniq -w 3 -c {}"),
    *_shell("cut", "cut -d ' ' -f 2 {}"),
    Consumer(name="tr <", script="tr a-z A-Z", needs=("tr",), stdin=True),
    *_named("join", 'join {} "$DATA/words.txt"'),
    *_named("paste", 'paste {} "$DATA/words.csv"', data="words"),
    *_named("comm", 'comm -12 {} "$DATA/words.txt"'),
    *_shell("nl", "nl {}"),
    *_shell("fold", "fold -w 7 {}"),
    *_shell("md5sum", "md5sum {}"),
    *_shell("sha256sum", "sha256sum {}"),
    *_shell("cksum", "cksum {}"),
    *_shell("base64", "base64 {}"),
    *_shell("base64 -d", "base64 -d {}", data="base64"),
    *_shell("od", "od -An -tx1 {}"),
    *_shell("shuf", 'shuf --random-source="$DATA/words.csv" {}'),
    *_shell("numfmt", "numfmt --field 3 --to=iec < {}", both=False),
    *_named("stat", "stat -L -c %s {}", stream=WAITS),
    *_named("truncate -r", "truncate -r {} hole", stream=WAITS),
    *_named("du", "du -L -b {}", stream=WAITS),
    *_named("ls", "ls -L {}", stream=WAITS),
    *_named("readlink", 'test -n "$(readlink -e {})"; cat {}', stream=WAITS),
    *_named("timeout", "timeout 30 cat {}"),
    *_named("setsid", "setsid --wait cat {}"),
    *_named("env -i", "env -i cat {}", "env"),
    *_named("nohup", "nohup cat {}"),
    *_named("cat twice", "cat {} {}", stream=TWICE),
    *_named("paste twice", "paste {} {}", stream=TWICE),
    *_named("comm twice", "comm {} {}", stream=TWICE),
    *_named("head and wc", "{ head -n 1; wc -l; } < {}", "head", "wc", stream=unfit(_REST)),
    *_named("od -j", "od -An -tx1 -j 100000 {}"),
    *_named("xxd -s", "xxd -s 100000 {}"),
    *_named("xxd -s -", "xxd -s -100 {}", stream=SEEKS),
]

_TOOLS = [
    *_shell("grep", "grep -n word42 {}"),
    *_named("grep -r", "grep -rhc word42 {}", stream=STREAMS),
    *_named("find", "find -L {} -type f -size +100k", stream=WAITS),
    *_named("file", "file -L -b {}", stream=WAITS),
    *_named("diff", 'diff {} "$DATA/words.csv" > differences || true', "diff", stream=WAITS),
    *_named("cmp", 'cmp {} "$DATA/words.txt" && echo same'),
    *_named("patch", 'cp "$DATA/words.txt" copy; patch -s copy {}', "patch", data="patch", stream=WAITS),
    *_named("xargs -a", "xargs -a {} -n 3000 echo"),
    Consumer(name="xargs <", script="xargs -n 3000 echo", needs=("xargs",), stdin=True),
    *_named("tar c", "tar -h --mtime=@1 -cf - {} 2> /dev/null | tar -xOf -", "tar", stream=WAITS),
    *_named("tar x", "tar -xf {}", data="tar"),
    *_named("tar xz", "tar -xzf {}", "tar", "gzip", data="tar.gz", stream=WAITS),
    Consumer(name="tar x <", script="tar -xf -", needs=("tar",), data="tar", stdin=True),
    *_named("cpio", "cpio --quiet -i -F {}", data="cpio"),
    *_shell("gzip", "gzip -nc {}"),
    *_shell("gzip -d", "gzip -dc {}", data="gz"),
    *_named("gzip -t", "gzip -t {} && echo whole", data="gz"),
    *_named("gzip -l", "gzip -l {} | tail -n 1 | cut -c 20-27", data="gz"),
    *_named("zcat", "zcat {}", "zcat", "gzip", data="gz"),
    *_shell("bzip2", "bzip2 -c {}", stream=WAITS),
    *_shell("bzip2 -d", "bzip2 -dc {}", data="bz2", stream=WAITS),
    *_shell("xz", "xz -1 -c {}"),
    *_shell("xz -d", "xz -dc {}", data="xz"),
    *_shell("zstd", "zstd -q -f -c {}", both=False, stream=WAITS),
    Consumer(name="zstd <", script="zstd -q -c", needs=("zstd",), stdin=True),
    *_shell("zstd -d", "zstd -q -f -dc {}", data="zst", stream=WAITS),
    *_shell("lz4", "lz4 -q -c {}"),
    *_shell("lz4 -d", "lz4 -q -dc {}", data="lz4", stream=WAITS),
    *_named("zip", "zip -q words.zip {}; unzip -p words.zip; rm words.zip", "zip", "unzip", stream=WAITS),
    *_named("unzip", "unzip -q {}", data="zip", stream=WAITS),
    *_named("rsync", "rsync -L {} copy", stream=WAITS),
    *_named("sqlite3", "sqlite3 {} 'select sum(id), max(word) from t'", data="sqlite", stream=WAITS),
    Consumer(
        name="sqlite3 <",
        script="{ cat; echo 'select sum(id) from t;'; } | sqlite3",
        needs=("sqlite3",),
        data="sql",
        stdin=True,
    ),
    *_shell("openssl", "openssl dgst -sha256 {}"),
    *_named("git hash-object", "git hash-object --no-filters {}"),
    *_named("iconv", "iconv -f ascii -t utf-16 {}"),
    *_named("strings", "strings -n 12 {}", stream=WAITS),
    *_named("curl", 'curl -s -S "file://$PWD/$IN"', "curl"),
]

_BIOLOGY = [
    *_named("bwa mem", 'bwa mem -v 1 "$DATA/bwa-index" {} 2> /dev/null', data="reads"),
    *_named("bwa index", "bwa index -p index {} 2>&-", "bwa", data="genome", stream=TWICE),
    *_shell("samtools view, SAM", "samtools view --no-PG -h -q 10 {}", data="sam", both=False),
    *_named("samtools view, BAM", "samtools view --no-PG -h {}", data="bam"),
    *_named("samtools sort", "samtools sort --no-PG -O sam {} 2>&-", "samtools", data="sam"),
    *_named("samtools flagstat", "samtools flagstat {}", data="bam"),
    *_named("samtools depth", "samtools depth {}", data="bam"),
    *_named("samtools index", "samtools index -o index.bai {}", data="bam"),
    *_named(
        "samtools faidx", "samtools faidx -o part.fa --fai-idx index.fai {} chr1:100-900", data="genome", stream=TWICE
    ),
    Consumer(name="samtools view <", script="samtools view --no-PG -c -", needs=("samtools",), data="bam", stdin=True),
    *_named("bcftools view, VCF", "bcftools view --no-version -i 'QUAL>30' {}", data="vcf"),
    *_named("bcftools view, BCF", "bcftools view --no-version {}", data="bcf"),
    *_named("bcftools query", "bcftools query -f '%POS %QUAL\\n' {}", data="vcf"),
    *_named("bcftools index", "bcftools index -o index.csi {}", data="bcf", stream=SEEKS),
    Consumer(
        name="bcftools view <", script="bcftools view --no-version -", needs=("bcftools",), data="vcf", stdin=True
    ),
    *_named(
        "bcftools mpileup", 'bcftools mpileup --no-version -f "$DATA/reference.fa" {} 2>&-', "bcftools", data="bam"
    ),
    *_named("bgzip", "bgzip -c {}", data="vcf"),
    *_named("bgzip -d", "bgzip -dc {}", data="vcf.gz"),
    *_named(
        "tabix -p",
        "cp {} copy.gz; tabix -p vcf copy.gz; tabix copy.gz chr1:500-900",
        "tabix",
        data="vcf.gz",
        stream=WAITS,
    ),
    *_named("tabix", "tabix -p vcf {}; tabix {} chr1:500-900", "tabix", data="vcf.gz", stream=TWICE),
    *_named(
        "hmmbuild",
        "hmmbuild --fast -n family family.hmm {} > /dev/null; grep -v DATE family.hmm; rm family.hmm",
        "hmmbuild",
        data="alignment",
        stream=WAITS,
    ),
    *_named(
        "hmmsearch, profile",
        'hmmsearch --noali --tblout hits {} "$DATA/proteins.fa" > /dev/null; grep -v "^#" hits; rm hits',
        "hmmsearch",
        data="profile",
        stream=SEEKS,
    ),
    *_named(
        "hmmsearch, sequences",
        'hmmsearch --tblout hits "$DATA/family.hmm" {} > /dev/null; grep -v "^#" hits; rm hits',
        "hmmsearch",
        data="proteins",
    ),
]

_SIZE = "asks its open file for the size"
_TYPE = "asks its open file for the type"
_MARK = "looks for the mark at the end"

#: Programs that ask for size or type, which cannot be held: only a rehearsal shows that they must not get a stream.
ASKS: dict[str, Expectation] = {
    "C: mmap": found_by_rehearsal(_SIZE),
    "C: stat": found_by_rehearsal(_SIZE),
    "C, static: mmap": found_by_rehearsal(_SIZE),
    "Go: mmap": fails_in_rehearsal(_SIZE),
    "Java: mmap": fails_in_rehearsal(_SIZE),
    "Python: mmap": fails_in_rehearsal(_SIZE),
    "Perl: -s": found_by_rehearsal(_SIZE),
    # Of a file of some MB they are as wide as of a pipe.
    "wc": replace(found_by_rehearsal("pads its columns by the size of its input"), or_equal=True),
    "split -n": fails_in_rehearsal(_SIZE),
    "sed -i": fails_in_rehearsal(_TYPE),
}

#: Under the net: what streams, although it could not read a pipe; what waits, although it could.
_NET: dict[str, Expectation] = {
    **ASKS,
    "patch": STREAMS,
    "hmmsearch, profile": STREAMS,
    "Perl: seek": STREAMS,
    "head and wc": STREAMS,
    "Go: read": held("copies without reading (copy_file_range)"),
    # Each line is read by a block, and the rest of that given back.
    "bash: while read": replace(held("goes back again and again"), or_equal=True),
    "bash: while read, head -n 2000": replace(held("goes back again and again"), or_equal=True),
    "bash: glob": held("lists the directory of the file"),
    "tac": held("begins at the end"),
    "tac <": held("begins at the end"),
    "tail -c": held("begins at the end"),
    "xargs <": held("asks whether there is something to read (poll)"),
    "iconv": held("maps the file into memory"),
    "samtools view, BAM": held(_MARK),
    "samtools view <": held(_MARK),
    "samtools flagstat": held(_MARK),
    "samtools depth": held(_MARK),
    "samtools index": held(_MARK),
    "bcftools view, BCF": held(_MARK),
    "bcftools mpileup": held(_MARK),
}


def _under_the_net(consumer: Consumer) -> Consumer:
    return replace(consumer, net=_NET.get(consumer.name))


_ALL = (*_COMPILED, *_BASH, *_PYTHON, *_LANGUAGES, *_COREUTILS, *_TOOLS, *_BIOLOGY)
CONSUMERS: tuple[Consumer, ...] = tuple(_under_the_net(consumer) for consumer in _ALL)
