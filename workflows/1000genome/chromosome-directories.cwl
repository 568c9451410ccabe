cwlVersion: v1.2
class: Workflow
doc: The five steps for one chromosome, joined by directories.
requirements:
  ScatterFeatureRequirement: {}
inputs:
  scripts: Directory
  chromosome: string
  vcf: File
  annotation: File
  ranges: string[]
  populations: File[]
  frequency_field: string?
  draws: int?
steps:
  sifting:
    run: tools/sifting.cwl
    in:
      scripts: scripts
      chromosome: chromosome
      annotation: annotation
    out: [sifted]
  individuals:
    run: tools/directories/individuals.cwl
    scatter: range
    in:
      scripts: scripts
      chromosome: chromosome
      vcf: vcf
      range: ranges
      frequency_field: frequency_field
    out: [variants]
  individuals_merge:
    run: tools/directories/individuals_merge.cwl
    in:
      scripts: scripts
      chromosome: chromosome
      parts: individuals/variants
    out: [merged]
  mutation_overlap:
    run: tools/directories/mutation_overlap.cwl
    scatter: population
    in:
      scripts: scripts
      chromosome: chromosome
      merged: individuals_merge/merged
      sifted: sifting/sifted
      population: populations
    out: [individuals, pairs, genes]
  frequency:
    run: tools/directories/frequency.cwl
    scatter: population
    in:
      scripts: scripts
      chromosome: chromosome
      merged: individuals_merge/merged
      sifted: sifting/sifted
      population: populations
      draws: draws
    out: [histograms, summary]
outputs:
  sifted: {type: File, outputSource: sifting/sifted}
  individuals: {type: "File[]", outputSource: mutation_overlap/individuals}
  pairs: {type: "File[]", outputSource: mutation_overlap/pairs}
  genes: {type: "File[]", outputSource: mutation_overlap/genes}
  histograms: {type: "File[]", outputSource: frequency/histograms}
  summary: {type: "File[]", outputSource: frequency/summary}
