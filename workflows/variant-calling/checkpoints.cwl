cwlVersion: v1.2
class: Workflow
label: Variants of several samples of a small genome, with five checkpoints of each
requirements:
  ScatterFeatureRequirement: {}
  SubworkflowFeatureRequirement: {}
inputs:
  scripts: {type: Directory, default: {class: Directory, location: scripts}, doc: "the Python tools"}
  reference: {type: File, doc: "FASTA, not compressed"}
  samples: {type: "string[]", doc: "their names, as the checkpoints are to be called; two or more"}
  read_groups: {type: "string[]", doc: "a SAM header line for each; SM names the sample in the result"}
  reads_1: {type: "File[]", doc: "FASTQ of the first mates, gzip-compressed or not"}
  reads_2: {type: "File[]", doc: "FASTQ of the second mates, in the same order"}
  # The others are those of variant-calling.cwl.
  reseed_ratio: float?
  reseed_occurrence: int?
  max_depth: {type: int, default: 250}
  ploidy: {type: string, default: "1"}
  min_quality: {type: int, default: 20}
  compression: {type: int, default: 6}
outputs:
  variants: {type: File, outputSource: merge/merged}
  reads_checkpoints: {type: "File[]", outputSource: sample/reads_checkpoint}
  aligned_checkpoints: {type: "File[]", outputSource: sample/aligned_checkpoint}
  fixed_checkpoints: {type: "File[]", outputSource: sample/fixed_checkpoint}
  marked_checkpoints: {type: "File[]", outputSource: sample/marked_checkpoint}
  likelihoods_checkpoints: {type: "File[]", outputSource: sample/likelihoods_checkpoint}
steps:
  bwa_index:
    run: tools/bwa-index.cwl
    in: {reference: reference}
    out: [indexed]
  faidx:
    run: tools/faidx.cwl
    in: {reference: reference}
    out: [indexed]
  sample:
    run: sample.cwl
    scatter: [sample, read_group, reads_1, reads_2]
    scatterMethod: dotproduct
    in:
      scripts: scripts
      sample: samples
      reference_bwa: bwa_index/indexed
      reference_fai: faidx/indexed
      reads_1: reads_1
      reads_2: reads_2
      read_group: read_groups
      reseed_ratio: reseed_ratio
      reseed_occurrence: reseed_occurrence
      max_depth: max_depth
      ploidy: ploidy
      min_quality: min_quality
      compression: compression
    out:
      - variants
      - reads_checkpoint
      - aligned_checkpoint
      - fixed_checkpoint
      - marked_checkpoint
      - likelihoods_checkpoint
  merge:
    run: tools/merge.cwl
    in: {variants: sample/variants}
    out: [merged]
