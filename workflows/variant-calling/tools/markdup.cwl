cwlVersion: v1.2
class: CommandLineTool
label: Mark duplicates
baseCommand: [samtools, markdup, --no-PG]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/samtools:1.17--h00cdaf9_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 128}
inputs:
  compression: {type: int, default: 6, inputBinding: {position: 1, prefix: --output-fmt, valueFrom: "bam,level=$(self)"}}
  alignments: {type: File, streamable: true, inputBinding: {position: 2}}
arguments:
  - {position: 3, valueFrom: "-"}
outputs:
  marked: {type: stdout, streamable: true}
stdout: marked.bam
stderr: markdup.log
