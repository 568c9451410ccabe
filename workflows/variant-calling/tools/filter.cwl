cwlVersion: v1.2
class: CommandLineTool
label: Mark the variants of low quality
baseCommand: [bcftools, filter, --no-version, --output-type, v, --soft-filter, LowQuality]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/bcftools:1.17--haef29d1_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 128}
inputs:
  min_quality: {type: int, default: 20, inputBinding: {position: 1, prefix: --exclude, valueFrom: "QUAL<$(self)"}}
  variants: {type: File, streamable: true, inputBinding: {position: 2}}
outputs:
  filtered: {type: stdout, streamable: true}
stdout: variants.vcf
stderr: filter.log
