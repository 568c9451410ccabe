cwlVersion: v1.2
class: Workflow
doc: Profile search (hmmsearch) over the fragments of a sequence database, with a checkpoint of each fragment.
requirements:
  ScatterFeatureRequirement: {}
  SubworkflowFeatureRequirement: {}
inputs:
  scripts:
    type: Directory
    default: {class: Directory, location: scripts}
    doc: The Python tools
  models:
    type: File
    doc: One or more profiles, as hmmbuild writes them
  database:
    type: File
    doc: Protein sequences, FASTA, not compressed
  fragments:
    type: int
    doc: How many fragments
  msv_filter:
    type: float?
    doc: "hmmsearch --F1: part of the sequences that pass its first filter (0.02); higher finds more distant relatives, slower"
  viterbi_filter:
    type: float?
    doc: "--F2: part that passes the second one (0.001)"
  forward_filter:
    type: float?
    doc: "--F3: part that passes the third one (0.00001)"
steps:
  split:
    run: tools/split.cwl
    in: {scripts: scripts, database: database, count: fragments}
    out: [fragments, targets]
  fragment:
    run: fragment.cwl
    scatter: fragment
    in:
      scripts: scripts
      models: models
      fragment: split/fragments
      targets: split/targets
      msv_filter: msv_filter
      viterbi_filter: viterbi_filter
      forward_filter: forward_filter
    out: [hits, checkpoint]
  merge:
    run: tools/merge.cwl
    in: {scripts: scripts, tables: fragment/hits}
    out: [merged]
outputs:
  hits: {type: File, outputSource: merge/merged}
  checkpoints: {type: "File[]", outputSource: fragment/checkpoint}
