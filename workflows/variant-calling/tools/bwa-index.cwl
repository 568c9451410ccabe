cwlVersion: v1.2
class: CommandLineTool
label: Index the reference for bwa mem
baseCommand: [bwa, index]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/bwa:0.7.17--h5bf99c6_8"}
requirements:
  InitialWorkDirRequirement: {listing: [$(inputs.reference)]}   # bwa writes the index next to the FASTA file
  ResourceRequirement: {coresMin: 1, ramMin: 256}
inputs:
  reference: {type: File, inputBinding: {valueFrom: $(self.basename)}}
outputs:
  indexed:
    type: File
    secondaryFiles: [.amb, .ann, .bwt, .pac, .sa]
    outputBinding: {glob: $(inputs.reference.basename)}
