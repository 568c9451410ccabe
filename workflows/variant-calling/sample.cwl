cwlVersion: v1.2
class: Workflow
label: Variants of one sample, with a checkpoint after five of the stages
doc: "The stages of variant-calling.cwl; the files between them are `streamable: true` there and here."
requirements:
  MultipleInputFeatureRequirement: {}
inputs:
  scripts: Directory
  sample: string
  reference_bwa: {type: File, secondaryFiles: [.amb, .ann, .bwt, .pac, .sa]}
  reference_fai: {type: File, secondaryFiles: [.fai]}
  reads_1: File
  reads_2: File
  read_group: string
  reseed_ratio: float?
  reseed_occurrence: int?
  max_depth: int
  ploidy: string
  min_quality: int
  compression: int
outputs:
  variants: {type: File, outputSource: filter/filtered}
  reads_checkpoint: {type: File, outputSource: checkpoint_reads/checkpoint}
  aligned_checkpoint: {type: File, outputSource: checkpoint_aligned/checkpoint}
  fixed_checkpoint: {type: File, outputSource: checkpoint_fixed/checkpoint}
  marked_checkpoint: {type: File, outputSource: checkpoint_marked/checkpoint}
  likelihoods_checkpoint: {type: File, outputSource: checkpoint_likelihoods/checkpoint}
steps:
  decompress_1:
    run: tools/decompress.cwl
    in: {compressed: reads_1}
    out: [reads]
  decompress_2:
    run: tools/decompress.cwl
    in: {compressed: reads_2}
    out: [reads]
  checkpoint_reads:
    run: tools/checkpoint.cwl
    in:
      scripts: scripts
      sample: sample
      stage: {default: reads}
      state: [decompress_1/reads, decompress_2/reads]
    out: [checkpoint]
  align:
    run: tools/align.cwl
    in:
      reference: reference_bwa
      reads_1: decompress_1/reads
      reads_2: decompress_2/reads
      read_group: read_group
      reseed_ratio: reseed_ratio
      reseed_occurrence: reseed_occurrence
    out: [alignments]
  checkpoint_aligned:
    run: tools/checkpoint.cwl
    in: {scripts: scripts, sample: sample, stage: {default: aligned}, state: align/alignments}
    out: [checkpoint]
  fixmate:
    run: tools/fixmate.cwl
    in: {alignments: align/alignments, compression: compression}
    out: [fixed]
  checkpoint_fixed:
    run: tools/checkpoint.cwl
    in: {scripts: scripts, sample: sample, stage: {default: fixed}, state: fixmate/fixed}
    out: [checkpoint]
  sort:
    run: tools/sort.cwl
    in: {alignments: fixmate/fixed, compression: compression}
    out: [sorted]
  markdup:
    run: tools/markdup.cwl
    in: {alignments: sort/sorted, compression: compression}
    out: [marked]
  checkpoint_marked:
    run: tools/checkpoint.cwl
    in: {scripts: scripts, sample: sample, stage: {default: marked}, state: markdup/marked}
    out: [checkpoint]
  mpileup:
    run: tools/mpileup.cwl
    in: {reference: reference_fai, alignments: markdup/marked, max_depth: max_depth}
    out: [likelihoods]
  checkpoint_likelihoods:
    run: tools/checkpoint.cwl
    in: {scripts: scripts, sample: sample, stage: {default: likelihoods}, state: mpileup/likelihoods}
    out: [checkpoint]
  call:
    run: tools/call.cwl
    in: {likelihoods: mpileup/likelihoods, ploidy: ploidy}
    out: [called]
  filter:
    run: tools/filter.cwl
    in: {variants: call/called, min_quality: min_quality}
    out: [filtered]
