cwlVersion: v1.2
class: Workflow
doc: Search one fragment, then write its checkpoint.
inputs:
  scripts: Directory
  models: File
  fragment: File
  targets: int
  msv_filter: float?
  viterbi_filter: float?
  forward_filter: float?
steps:
  search:
    run: tools/search.cwl
    in:
      models: models
      fragment: fragment
      targets: targets
      msv_filter: msv_filter
      viterbi_filter: viterbi_filter
      forward_filter: forward_filter
    out: [hits]
  checkpoint:
    run: tools/checkpoint.cwl
    in:
      scripts: scripts
      fragment: fragment
      hits: search/hits
    out: [checkpoint]
outputs:
  hits: {type: File, outputSource: search/hits}
  checkpoint: {type: File, outputSource: checkpoint/checkpoint}
