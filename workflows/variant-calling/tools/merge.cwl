cwlVersion: v1.2
class: CommandLineTool
label: One table of the variants of all samples
baseCommand: [bcftools, merge, --no-version, --no-index, --output-type, v]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/bcftools:1.17--haef29d1_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 128}
inputs:
  variants: {type: "File[]", inputBinding: {position: 1}}
outputs:
  merged: stdout
stdout: samples.vcf
stderr: merge.log
