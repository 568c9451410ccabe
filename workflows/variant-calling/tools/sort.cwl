cwlVersion: v1.2
class: CommandLineTool
label: Sort by coordinate
doc: Reads all of its input before the first byte leaves; what lies before and after it overlaps among itself.
baseCommand: [samtools, sort, --no-PG]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/samtools:1.17--h00cdaf9_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 1024}
arguments:
  - {position: 1, prefix: -m, valueFrom: 768M}    # more than this goes to temporary files in the job's directory
inputs:
  compression: {type: int, default: 6, inputBinding: {position: 1, prefix: --output-fmt, valueFrom: "bam,level=$(self)"}}
  alignments: {type: File, streamable: true, inputBinding: {position: 2}}
outputs:
  sorted: {type: stdout, streamable: true}
stdout: sorted.bam
stderr: sort.log
