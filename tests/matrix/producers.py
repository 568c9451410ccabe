"""The table of producers: programs that write one file, or several."""

from __future__ import annotations

from tests.matrix.programs import BASH, PYTHON, STREAMS, Expectation, Producer, rewrites

SLOW = 'slow "$DATA/words.txt"'
REPLACES = rewrites("replaces the file")
MAPS = rewrites("fills the file through a mapping")
HEADER = rewrites("goes back to its first bytes")
_GUNZIP = 'gzip -dc "$IN"'


def _producer(
    name: str,
    script: str,
    *needs: str,
    file: str = "words",
    then: str = 'cat "$IN"',
    data: str = "words",
    closes: int = 1,
    never_closed: bool = False,
    stream: Expectation = STREAMS,
) -> Producer:
    """``{}`` in ``script`` is the slow input; the first program of the script is needed, if ``needs`` names none."""
    return Producer(
        name=name,
        script=script.replace("{}", SLOW),
        needs=needs or (name.split()[0],),
        file=file,
        then=then,
        data=data,
        closes=closes,
        never_closed=never_closed,
        stream=stream,
    )


def _python(
    name: str, script: str, file: str = "words", then: str = 'cat "$IN"', stream: Expectation = STREAMS
) -> Producer:
    script = f"import os, sys, subprocess\ninput = os.popen('slow \"$DATA/words.txt\"')\n{script}"
    return Producer(
        name=f"Python: {name}",
        script=script,
        needs=("python3",),
        file=file,
        interpreter=PYTHON,
        then=then,
        stream=stream,
    )


PRODUCERS: tuple[Producer, ...] = (
    _producer("C: write", "{} | writer write out/words", "writer"),
    _producer("C: stdio", "{} | writer stdio out/words", "writer"),
    _producer("C: mmap", "{} | writer mmap out/words", "writer", stream=MAPS),
    _producer("C: header", "{} | writer header out/words", "writer", stream=HEADER),
    _producer("C++", "{} | streams write out/words", "streams"),
    _producer("Go", "{} | files-go write out/words", "files-go"),
    _producer("Java: write", "{} | files-java write out/words", "files-java"),
    _producer("Java: mmap", "{} | files-java mapped out/words", "files-java", stream=MAPS),
    _producer("sh: >", "{} > out/words", "sh"),
    _producer("sh: >>", "{ {} | head -n 8000; seq 9; } >> out/words", "sh"),
    _producer(
        "sh: >> four times",
        'for i in 1 2 3 4; do echo "line $i" >> out/words; [ $i != 2 ] || {} > /dev/null; done',
        "sh",
        closes=4,
    ),
    _producer("sh: exec 3>", "exec 3> out/words; {} >&3; echo end >&3; exec 3>&-", "sh"),
    Producer(
        name="bash: while read",
        script=f'{SLOW} | head -n 6000 | while read -r id word number; do echo "$word $id"; done > out/words',
        needs=("bash",),
        file="words",
        interpreter=BASH,
    ),
    Producer(
        name="bash: > >(gzip)",
        script=f"{SLOW} > >(gzip -n > out/words.gz)",
        needs=("bash", "gzip"),
        file="words.gz",
        interpreter=BASH,
        then=_GUNZIP,
    ),
    _python("write", "with open('out/words', 'w') as f:\n    for line in input: f.write(line)"),
    _python(
        "mmap",
        "import mmap, time\ndata = input.read().encode()\nf = open('out/words', 'w+b')\nf.truncate(len(data))\n"
        "time.sleep(0.1)\nm = mmap.mmap(f.fileno(), 0)\nm[:] = data\nm.flush()",
        stream=MAPS,
    ),
    _python(
        "gzip",
        "import gzip\nwith gzip.GzipFile('out/words.gz', 'w', mtime=0) as f: f.write(input.read().encode())",
        "words.gz",
        _GUNZIP,
    ),
    _python(
        "zipfile",
        "import zipfile\nwith zipfile.ZipFile('out/words.zip', 'w') as z, z.open('words', 'w') as f:\n"
        "    for line in input: f.write(line.encode())",
        "words.zip",
        "cat \"$IN\" > copy; python3 -ISc \"import zipfile; print(zipfile.ZipFile('copy').read('words').decode())\"",
        stream=HEADER,
    ),
    _python(
        "os.replace", "with open('out/.words', 'w') as f: f.write(input.read())\nos.replace('out/.words', 'out/words')"
    ),
    _producer("dd", "{} | dd of=out/words bs=1000 status=none"),
    _producer("dd conv=notrunc seek=", "{} | dd of=out/words bs=1000 seek=3 conv=notrunc status=none"),
    _producer("tee", "{} | tee out/words > /dev/null"),
    _producer("tee -a", "{} | tee -a out/words > /dev/null"),
    _producer("cp", "{} | cp /dev/stdin out/words"),
    _producer("mv", "{} > out/.words; mv out/.words out/words"),
    _producer("ln", "mkdir other; {} > other/words; ln other/words out/words", never_closed=True),
    _producer("ln -s", 'mkdir other; {} > other/words; ln -s "$PWD/other/words" out/words', never_closed=True),
    _producer("install", "{} > words; install -m 600 words out/words"),
    _producer(
        "truncate",
        "{} > out/words; truncate -s 1000 out/words",
        "truncate",
        closes=2,
        stream=rewrites("cuts what was streamed"),
    ),
    _producer("rsync", "{} > words; rsync words out/words", "rsync"),
    _producer("sort", "{} | sort -k 2 -o out/words"),
    _producer("sed", "{} | sed s/word/WORD/ > out/words"),
    _producer("sed -i", "{} > out/words; sed -i s/word/WORD/ out/words", closes=2, stream=REPLACES),
    _producer("awk", "{} | awk '{ print $2 > \"out/words\" }'"),
    _producer("awk, fflush", "{} | awk '{ print $2 > \"out/words\"; if (NR % 50 == 0) fflush() }'", "awk"),
    _producer("grep", "{} | grep word1 > out/words"),
    _producer("perl", '{} | perl -ne \'BEGIN { open F, ">", "out/words" } print F reverse split //\''),
    Producer(
        name="node",
        script=f"{SLOW} | node -e \"process.stdin.pipe(require('fs').createWriteStream('out/words'))\"",
        needs=("node",),
        file="words",
    ),
    Producer(
        name="split",
        script=f"{SLOW} | split -l 3000 - out/part.",
        needs=("split",),
        file="part.ab",
        globs=("part.*",),
    ),
    _producer("gzip", "{} | gzip -n > out/words.gz", file="words.gz", then=_GUNZIP),
    _producer("gzip FILE", "{} > out/words; gzip -n out/words", "gzip", file="words.gz", then=_GUNZIP),
    _producer("bzip2", "{} | bzip2 > out/words.bz2", file="words.bz2", then='bzip2 -dc < "$IN"'),
    _producer("xz", "{} | xz -1 > out/words.xz", file="words.xz", then='xz -dc "$IN"'),
    _producer("zstd", "{} | zstd -q -o out/words.zst", file="words.zst", then='zstd -q -f -dc < "$IN"'),
    _producer("lz4", "{} | lz4 -q - out/words.lz4", file="words.lz4", then='lz4 -q -dc < "$IN"'),
    _producer("tar", "{} > words; tar --mtime=@1 -cf out/words.tar words", file="words.tar", then='tar -xOf "$IN"'),
    # With the time of a file, not with that of the day, which two runs do not share.
    _producer(
        "zip",
        "{} > words; touch -d @86400 words; zip -qX out/words.zip words",
        file="words.zip",
        then='cat "$IN" > copy; unzip -p copy',
    ),
    _producer(
        "sqlite3",
        'slow "$DATA/words.sql" | sqlite3 out/words.db',
        file="words.db",
        data="sql",
        then='cat "$IN" > copy; sqlite3 copy "select sum(id), max(word) from t"',
        stream=rewrites("is a database"),
    ),
    _producer("openssl", "{} | openssl enc -base64 -out out/words", then='openssl enc -base64 -d -in "$IN"'),
    _producer("jq", 'slow "$DATA/words.json" | jq -c .word > out/words', data="json"),
    _producer(
        "bwa mem",
        'slow "$DATA/reads.fq" | bwa mem -v 1 -o out/reads.sam "$DATA/bwa-index" -',
        file="reads.sam",
        data="sam",
        then='samtools view --no-PG -h "$IN"',
    ),
    _producer(
        "samtools view -b",
        'slow "$DATA/reads.sam" | samtools view --no-PG -b -o out/reads.bam -',
        file="reads.bam",
        data="sam",
        then='samtools view --no-PG -h "$IN"',
    ),
    _producer(
        "samtools sort",
        'slow "$DATA/reads.sam" | samtools sort --no-PG -o out/reads.bam - 2>&-',
        file="reads.bam",
        data="sam",
        then='samtools flagstat "$IN"',
    ),
    _producer(
        "bcftools view",
        'slow "$DATA/variants.vcf" | bcftools view --no-version -Ob -o out/variants.bcf -',
        file="variants.bcf",
        data="vcf",
        then='bcftools query -f "%POS\\n" "$IN"',
    ),
    _producer(
        "bgzip",
        'slow "$DATA/variants.vcf" | bgzip -c > out/variants.vcf.gz',
        file="variants.vcf.gz",
        data="vcf",
        then='bcftools view --no-version "$IN"',
    ),
    _producer(
        "hmmsearch",
        'slow "$DATA/proteins.fa" > all.fa; hmmsearch --noali -o out/report --tblout hits "$DATA/family.hmm" all.fa',
        file="report",
        data="profile",
        then='grep protein "$IN"',
    ),
)
