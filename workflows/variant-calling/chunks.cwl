cwlVersion: v1.2
class: Workflow
label: Variants of a small genome from paired reads, aligned in chunks
doc: |
  The stages of variant-calling.cwl. Both files of mates are split into chunks of `every` pairs, which are aligned side by side.
  With as many pairs in a chunk as bwa has in a batch the results are those of variant-calling.cwl.
requirements:
  ScatterFeatureRequirement: {}
inputs:
  reference: {type: File, doc: "FASTA, not compressed"}
  reads_1: {type: File, doc: "FASTQ of the first mates, gzip-compressed or not"}
  reads_2: {type: File, doc: "FASTQ of the second mates, in the same order"}
  every: {type: int, default: 50000, doc: "pairs in a chunk: as many as bwa has in a batch (tools/align.cwl), or a multiple of that"}
  read_group: {type: string, default: '@RG\tID:sample\tSM:sample', doc: "SAM header line; SM names the sample in the result"}
  reseed_ratio: {type: float?, doc: "bwa mem -r: seeds longer than this times 19 are searched for shorter ones (default 1.5)"}
  reseed_occurrence: {type: int?, doc: "bwa mem -y: third round of seeding, 0 for none (default 20)"}
  max_depth: {type: int, default: 250, doc: "bcftools mpileup: most reads looked at per position"}
  ploidy: {type: string, default: "1", doc: "bcftools call: ploidy or predefined assembly"}
  min_quality: {type: int, default: 20, doc: "variants below it are marked LowQuality in the FILTER column"}
  compression: {type: int, default: 6, doc: "of the BAM files, 0 (none) to 9"}
outputs:
  alignments: {type: File, outputSource: markdup/marked}
  variants: {type: File, outputSource: filter/filtered}
steps:
  bwa_index:
    run: tools/bwa-index.cwl
    in: {reference: reference}
    out: [indexed]
  faidx:
    run: tools/faidx.cwl
    in: {reference: reference}
    out: [indexed]
  decompress_1:
    run: tools/decompress.cwl
    in: {compressed: reads_1}
    out: [reads]
  decompress_2:
    run: tools/decompress.cwl
    in: {compressed: reads_2}
    out: [reads]
  split_1:
    run: ../tools/partition.cwl
    in: {whole: decompress_1/reads, records: {default: fastq}, every: every, names: {default: chunk-%04d_1.fq}}
    out: [parts]
  split_2:
    run: ../tools/partition.cwl
    in: {whole: decompress_2/reads, records: {default: fastq}, every: every, names: {default: chunk-%04d_2.fq}}
    out: [parts]
  align:
    run: tools/align.cwl
    scatter: [reads_1, reads_2]
    scatterMethod: dotproduct
    in:
      reference: bwa_index/indexed
      reads_1: split_1/parts
      reads_2: split_2/parts
      read_group: read_group
      reseed_ratio: reseed_ratio
      reseed_occurrence: reseed_occurrence
    out: [alignments]
  fixmate:
    run: tools/fixmate.cwl
    scatter: alignments
    in: {alignments: align/alignments, compression: compression}
    out: [fixed]
  cat:
    run: tools/cat.cwl
    in: {alignments: fixmate/fixed}
    out: [whole]
  sort:
    run: tools/sort.cwl
    in: {alignments: cat/whole, compression: compression}
    out: [sorted]
  markdup:
    run: tools/markdup.cwl
    in: {alignments: sort/sorted, compression: compression}
    out: [marked]
  mpileup:
    run: tools/mpileup.cwl
    in: {reference: faidx/indexed, alignments: markdup/marked, max_depth: max_depth}
    out: [likelihoods]
  call:
    run: tools/call.cwl
    in: {likelihoods: mpileup/likelihoods, ploidy: ploidy}
    out: [called]
  filter:
    run: tools/filter.cwl
    in: {variants: call/called, min_quality: min_quality}
    out: [filtered]
