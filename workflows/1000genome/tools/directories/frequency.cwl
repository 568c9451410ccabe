cwlVersion: v1.2
class: CommandLineTool
doc: In how many individuals of random groups of a population a variant is found, from a file for each individual.
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/frequency_directory.py}
  - {position: 4, prefix: --histograms, valueFrom: $(inputs.chromosome).$(inputs.population.basename).histograms.tsv}
  - {position: 4, prefix: --summary, valueFrom: $(inputs.chromosome).$(inputs.population.basename).frequency.tsv}
inputs:
  scripts: Directory
  chromosome: string
  merged: {type: Directory, inputBinding: {position: 1}}
  sifted: {type: File, streamable: true, inputBinding: {position: 2}}
  population: {type: File, inputBinding: {position: 3}}
  draws: {type: "int?", inputBinding: {position: 5, prefix: --draws}}
outputs:
  histograms:
    type: File
    outputBinding: {glob: $(inputs.chromosome).$(inputs.population.basename).histograms.tsv}
  summary:
    type: File
    outputBinding: {glob: $(inputs.chromosome).$(inputs.population.basename).frequency.tsv}
