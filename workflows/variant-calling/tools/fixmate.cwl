cwlVersion: v1.2
class: CommandLineTool
label: Add the mate score tags that markdup needs
baseCommand: [samtools, fixmate, --no-PG, -m]
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
  fixed: {type: stdout, streamable: true}
stdout: fixed.bam
stderr: fixmate.log
