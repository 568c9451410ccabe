cwlVersion: v1.2
class: CommandLineTool
label: Index the reference for bwa mem
baseCommand: [bwa, index]
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
