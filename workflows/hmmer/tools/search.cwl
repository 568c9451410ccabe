cwlVersion: v1.2
class: CommandLineTool
doc: |
  The hits of profiles in one fragment. E-values are those of the whole database: they depend on the number of its
  sequences, which is given (-Z). The comments of the table name paths and the date and are left out.
baseCommand: [sh, -c, 'hmmsearch -o /dev/null --tblout table "$@" && sed "/^#/d" table', hmmsearch]
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 128}
arguments:
  - {position: 0, prefix: --cpu, valueFrom: $(runtime.cores)}
inputs:
  targets: {type: int, inputBinding: {position: 1, prefix: -Z}}
  msv_filter: {type: "float?", inputBinding: {position: 1, prefix: --F1}}
  viterbi_filter: {type: "float?", inputBinding: {position: 1, prefix: --F2}}
  forward_filter: {type: "float?", inputBinding: {position: 1, prefix: --F3}}
  models: {type: File, inputBinding: {position: 2}}
  fragment: {type: File, inputBinding: {position: 3}}
outputs:
  hits: stdout
stdout: $(inputs.fragment.nameroot).hits
stderr: hmmsearch.log
