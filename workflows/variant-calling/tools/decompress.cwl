cwlVersion: v1.2
class: CommandLineTool
label: Decompress the reads of one mate
baseCommand: [gzip, --decompress, --stdout, --force]   # --force lets reads that are not compressed pass as they are
hints:
  DockerRequirement: {dockerPull: "debian:12-slim"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 64}
inputs:
  compressed: {type: File, streamable: true}
stdin: $(inputs.compressed.path)
outputs:
  reads: {type: stdout, streamable: true}
stdout: $(inputs.compressed.nameroot)
stderr: gzip.log
