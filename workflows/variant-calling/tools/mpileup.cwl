cwlVersion: v1.2
class: CommandLineTool
label: Genotype likelihoods at every position
baseCommand: [bcftools, mpileup, --no-version, --output-type, u, --annotate, "FORMAT/AD,FORMAT/DP"]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/bcftools:1.17--haef29d1_0"}
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 256}
arguments:
  - {position: 1, prefix: --max-idepth, valueFrom: $(inputs.max_depth)}   # above it bcftools calls no indels
inputs:
  max_depth: {type: int, default: 250, inputBinding: {position: 1, prefix: --max-depth}}
  reference: {type: File, secondaryFiles: [.fai], inputBinding: {position: 1, prefix: --fasta-ref}}
  alignments: {type: File, streamable: true, inputBinding: {position: 2}}
outputs:
  likelihoods: {type: stdout, streamable: true}
stdout: likelihoods.bcf
stderr: mpileup.log
