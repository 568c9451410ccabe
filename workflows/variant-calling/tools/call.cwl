cwlVersion: v1.2
class: CommandLineTool
label: Call variants
baseCommand: [bcftools, call, --no-version, --multiallelic-caller, --variants-only, --output-type, u]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/bcftools:1.17--haef29d1_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 128}
inputs:
  ploidy: {type: string, default: "1", inputBinding: {position: 1, prefix: --ploidy}}
  likelihoods: {type: File, streamable: true, inputBinding: {position: 2}}
outputs:
  called: {type: stdout, streamable: true}
stdout: called.bcf
stderr: call.log
