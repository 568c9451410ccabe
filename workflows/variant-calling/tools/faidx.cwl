cwlVersion: v1.2
class: CommandLineTool
label: Index the reference for bcftools mpileup
baseCommand: [samtools, faidx]
hints:
  DockerRequirement: {dockerPull: "quay.io/biocontainers/samtools:1.17--h00cdaf9_0"}
requirements:
  InitialWorkDirRequirement: {listing: [$(inputs.reference)]}   # samtools writes the index next to the FASTA file
  ResourceRequirement: {coresMin: 1, ramMin: 256}
inputs:
  reference: {type: File, inputBinding: {valueFrom: $(self.basename)}}
outputs:
  indexed:
    type: File
    secondaryFiles: [.fai]
    outputBinding: {glob: $(inputs.reference.basename)}
