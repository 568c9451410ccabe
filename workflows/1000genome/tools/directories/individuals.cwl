cwlVersion: v1.2
class: CommandLineTool
doc: One file per sample with the SNPs of which it carries the minor allele, from one range of lines of a VCF.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  # Each file is complete when it is closed; who reads the directory runs along and waits for the file that he opens.
  - class: sfio:Streaming
    rules:
      - {port: variants, committed: on_close, start: producer}
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/individuals_directory.py}
  - {position: 3, valueFrom: $(inputs.chromosome).$(inputs.range)}
inputs:
  scripts: Directory
  chromosome: string
  vcf: {type: File, inputBinding: {position: 1}}
  range: {type: string, inputBinding: {position: 2}, doc: "KofN, for example 2of4"}
  frequency_field: {type: "string?", inputBinding: {position: 4, prefix: --field}}
outputs:
  variants:
    type: Directory
    outputBinding: {glob: $(inputs.chromosome).$(inputs.range)}
