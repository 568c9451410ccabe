cwlVersion: v1.2
class: CommandLineTool
label: Align the pairs to the reference
baseCommand: [bwa, mem]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/bwa:0.7.17--h5bf99c6_8"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 512}
arguments:
  # One batch is 10 million bases whatever the threads: bwa learns the insert size per batch, so this fixes the result.
  - {prefix: -K, valueFrom: "10000000"}
  - {prefix: -t, valueFrom: $(runtime.cores)}
inputs:
  read_group: {type: string, inputBinding: {prefix: -R}}
  reseed_ratio: {type: float?, inputBinding: {prefix: -r}}
  reseed_occurrence: {type: int?, inputBinding: {prefix: -y}}
  reference:
    type: File
    secondaryFiles: [.amb, .ann, .bwt, .pac, .sa]
    inputBinding: {position: 1}
  reads_1: {type: File, streamable: true, inputBinding: {position: 2}}
  reads_2: {type: File, streamable: true, inputBinding: {position: 3}}
outputs:
  alignments: {type: stdout, streamable: true}
stdout: aligned.sam
stderr: bwa.log
