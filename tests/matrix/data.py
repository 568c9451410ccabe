"""The data that the programs of the matrix read, and the programs that are compiled for it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Built:
    """Something that ``script`` makes (sh, in the directory of all data): ``file``, after everything in ``after``.

    Its size is about proportional to ``$SCALE``: some 200 kB.
    """

    file: str
    script: str
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_WORDS = """
awk -v n=$(( 9000 * SCALE )) 'BEGIN { srand(7)
    for (i = 0; i < n; i++) printf "%06d word%03d %d\\n", i, rand() * 1000, rand() * 100000 }'
"""
_GENOME = """
awk 'BEGIN { srand(3); split("A C G T", base); print ">chr1"
    for (i = 0; i < 200; i++) { line = ""; for (j = 0; j < 60; j++) line = line base[1 + int(rand() * 4)]
        print line } }'
"""
_READS = """
awk -v n=$(( 1500 * SCALE )) 'NR > 1 { genome = genome $0 } END { srand(5)
    quality = sprintf("%70s", ""); gsub(" ", "I", quality)
    for (i = 0; i < n; i++)
        printf "@read%d\\n%s\\n+\\n%s\\n", i, substr(genome, 1 + int(rand() * 11900), 70), quality }' genome.fa
"""
_VARIANTS = """
{ echo '##fileformat=VCFv4.2'; echo '##contig=<ID=chr1,length='$(( 12000 * SCALE ))'>'
  echo '##INFO=<ID=DP,Number=1,Type=Integer,Description="Depth">'
  printf '#CHROM\\tPOS\\tID\\tREF\\tALT\\tQUAL\\tFILTER\\tINFO\\n'
  awk -v n=$(( 3900 * SCALE )) 'BEGIN { for (i = 1; i < n; i++)
      printf "chr1\\t%d\\tv%d\\tA\\tC\\t%d\\tPASS\\tDP=%d\\n", i * 3, i, i % 60, i % 99 }'
}
"""
_PROTEINS = """
awk 'BEGIN { srand(9); split("A C D E F G H I K L M N P Q R S T V W Y", acid)
    for (i = 0; i < 60; i++) { print ">protein" i
        if (i % 10 == 0) print "MKVLAAGIVGLPNVGKSTLFNALTGAKVAVSDRPGTTRDWVEGEL"
        line = ""; for (j = 0; j < 80; j++) line = line acid[1 + int(rand() * 20)]; print line } }'
"""
_ALIGNMENT = """
{ echo '# STOCKHOLM 1.0'; echo
  echo 'first  MKVLAAGIVGLPNVGKSTLFNALTGAKVAVSDRPGTTRDWVEGEL'
  echo 'second MKVIAAGLVGLPNVGKSTLFNRLTGAKVAVSNRPGTTRDWLEGEL'
  echo 'third  MRVLAVGIVGLPNAGKSTLFNALTGSKVAVSDRPGTTRDFVEGEL'
  echo '//'; }
"""
_SQL = """
{ echo 'create table t (id integer, word text);begin;'
  awk '{ printf "insert into t values (%d, '"'%s'"');\\n", $1, $2 }' words.txt; echo 'commit;'; }
"""

DATA: dict[str, Built] = {
    "words": Built(file="words.txt", script=f"{_WORDS.strip()} > words.txt"),
    "json": Built(
        file="words.json",
        script="""awk '{ printf "{\\"id\\": %d, \\"word\\": \\"%s\\"}\\n", $1, $2 }' words.txt > words.json""",
        after=("words",),
    ),
    "csv": Built(file="words.csv", script="tr ' ' , < words.txt > words.csv", after=("words",)),
    "script": Built(
        file="script.sh",
        script="{ echo '#!/bin/sh'; seq -f 'echo line %.0f' 3000; } > script.sh; chmod +x script.sh",
    ),
    "module": Built(file="module.py", script="seq -f 'print(%.0f * 7)' 3000 > module.py"),
    "patch": Built(
        file="words.patch",
        script="sed s/word1/WORD1/ words.txt > changed; diff -u words.txt changed > words.patch || true; rm changed",
        after=("words",),
    ),
    "base64": Built(file="words.b64", script="base64 words.txt > words.b64", after=("words",)),
    "tar": Built(
        file="words.tar",
        script="tar --mtime=@1 --owner=0 --group=0 -cf words.tar words.txt words.csv words.json",
        needs=("tar",),
        after=("words", "csv", "json"),
    ),
    "tar.gz": Built(file="words.tar.gz", script="gzip -n < words.tar > words.tar.gz", needs=("gzip",), after=("tar",)),
    "gz": Built(file="words.txt.gz", script="gzip -n < words.txt > words.txt.gz", needs=("gzip",), after=("words",)),
    "bz2": Built(file="words.bz2", script="bzip2 < words.txt > words.bz2", needs=("bzip2",), after=("words",)),
    "xz": Built(file="words.xz", script="xz -1 < words.txt > words.xz", needs=("xz",), after=("words",)),
    "zst": Built(file="words.zst", script="zstd -q < words.txt > words.zst", needs=("zstd",), after=("words",)),
    "lz4": Built(file="words.lz4", script="lz4 -q < words.txt > words.lz4", needs=("lz4",), after=("words",)),
    "cpio": Built(
        file="words.cpio",
        script="printf 'words.txt\\nwords.csv\\n' | cpio --quiet -o -H newc > words.cpio",
        needs=("cpio",),
        after=("words", "csv"),
    ),
    "zip": Built(
        file="words.zip",
        script="zip -q -X words.zip words.txt words.csv",
        needs=("zip",),
        after=("words", "csv"),
    ),
    "sql": Built(file="words.sql", script=f"{_SQL.strip()} > words.sql", after=("words",)),
    "sqlite": Built(
        file="words.db",
        script="sqlite3 words.db < words.sql",
        needs=("sqlite3",),
        after=("sql",),
    ),
    "genome": Built(file="genome.fa", script=f"{_GENOME.strip()} > genome.fa"),
    "reference": Built(
        file="reference.fa",
        script="cp genome.fa reference.fa; samtools faidx reference.fa",
        needs=("samtools",),
        after=("genome",),
    ),
    "reads": Built(file="reads.fq", script=f"{_READS.strip()} > reads.fq", after=("genome",)),
    "index": Built(
        file="bwa-index", script="cp genome.fa bwa-index; bwa index bwa-index 2>&-", needs=("bwa",), after=("genome",)
    ),
    "sam": Built(
        file="reads.sam",
        script="bwa mem -v 1 bwa-index reads.fq > reads.sam",
        needs=("bwa",),
        after=("index", "reads"),
    ),
    "bam": Built(
        file="reads.bam",
        script="samtools sort --no-PG -o reads.bam reads.sam 2>&-",
        needs=("samtools",),
        after=("sam",),
    ),
    "vcf": Built(file="variants.vcf", script=f"{_VARIANTS.strip()} > variants.vcf"),
    "vcf.gz": Built(
        file="variants.vcf.gz",
        script="bgzip -c variants.vcf > variants.vcf.gz",
        needs=("bgzip",),
        after=("vcf",),
    ),
    "bcf": Built(
        file="variants.bcf",
        script="bcftools view --no-version -Ob variants.vcf -o variants.bcf",
        needs=("bcftools",),
        after=("vcf",),
    ),
    "proteins": Built(file="proteins.fa", script=f"{_PROTEINS.strip()} > proteins.fa"),
    "alignment": Built(file="family.sto", script=f"{_ALIGNMENT.strip()} > family.sto"),
    "profile": Built(
        file="family.hmm",
        script="hmmbuild -n family family.hmm family.sto > /dev/null",
        needs=("hmmbuild",),
        after=("alignment",),
    ),
    #: What the tool "slow" writes as a directory, and what a finished one is compared with.
    "directory": Built(
        file="directory",
        script="mkdir -p directory/sub; head -n 4000 words.txt > directory/a.txt; cp words.csv directory/sub/c",
        after=("words", "csv"),
    ),
}

#: Feeds a file: the first half, then, when the runner says so by the end of the file $GO, the rest.
_SLOW = """#!/bin/sh
half=$(( $(stat -L -c %s "$1") / 2 ))
head -c $half "$1"
: > "$GO.half"
read -r line < "$GO"
tail -c +$(( half + 1 )) "$1"
"""

_JAVA = """
javac -d . {sources}/Files.java
printf '#!/bin/sh\\nexec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "%s" Files "$@"\\n' "$PWD" > files-java
chmod +x files-java
"""

#: Compiled, or written, into a directory that is first in the PATH. ``{sources}`` is where the sources are.
TOOLS: dict[str, Built] = {
    "slow": Built(file="slow", script=f"cat > slow <<'END'\n{_SLOW}END\nchmod +x slow"),
    "reader": Built(file="reader", script="gcc -O1 -pthread -o reader {sources}/reader.c", needs=("gcc",)),
    "reader-static": Built(
        file="reader-static",
        script="gcc -O1 -pthread -static -o reader-static {sources}/reader.c",
        needs=("gcc",),
    ),
    "writer": Built(file="writer", script="gcc -O1 -o writer {sources}/writer.c", needs=("gcc",)),
    "streams": Built(file="streams", script="g++ -O1 -o streams {sources}/streams.cpp", needs=("g++",)),
    "files-go": Built(file="files-go", script="CGO_ENABLED=0 go build -o files-go {sources}/files.go", needs=("go",)),
    "files-java": Built(file="files-java", script=f"{_JAVA.strip()}", needs=("java", "javac")),
}
