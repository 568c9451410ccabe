cwlVersion: v1.2
class: CommandLineTool
doc: How far the individuals of a population share their variants with a SIFT score, from a file for each individual.
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/mutation_overlap_directory.py}
  - {position: 4, prefix: --individuals, valueFrom: $(inputs.chromosome).$(inputs.population.basename).individuals.tsv}
  - {position: 4, prefix: --pairs, valueFrom: $(inputs.chromosome).$(inputs.population.basename).pairs.tsv}
  - {position: 4, prefix: --genes, valueFrom: $(inputs.chromosome).$(inputs.population.basename).genes.tsv}
inputs:
  scripts: Directory
  chromosome: string
  merged: {type: Directory, inputBinding: {position: 1}}
  sifted: {type: File, streamable: true, inputBinding: {position: 2}}
  population: {type: File, inputBinding: {position: 3}}
outputs:
  individuals:
    type: File
    outputBinding: {glob: $(inputs.chromosome).$(inputs.population.basename).individuals.tsv}
  pairs:
    type: File
    outputBinding: {glob: $(inputs.chromosome).$(inputs.population.basename).pairs.tsv}
  genes:
    type: File
    outputBinding: {glob: $(inputs.chromosome).$(inputs.population.basename).genes.tsv}
