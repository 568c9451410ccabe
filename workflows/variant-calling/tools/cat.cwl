cwlVersion: v1.2
class: CommandLineTool
label: One file of the alignments of all chunks, in order
doc: Not streamable. samtools opens the first file twice.
baseCommand: [samtools, cat, --no-PG]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/samtools:1.17--h00cdaf9_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 64}
inputs:
  alignments: {type: "File[]", inputBinding: {position: 1}}
outputs:
  whole: {type: stdout, streamable: true}
stdout: fixed.bam
stderr: cat.log
