cwlVersion: v1.2
class: Workflow
doc: As main.cwl, with one file per sample between the steps, in directories, as in the Pegasus 1000genome-workflow.
requirements:
  ScatterFeatureRequirement: {}
  SubworkflowFeatureRequirement: {}
inputs:
  # Here, not as a default of each tool: see main.cwl.
  scripts:
    type: Directory
    default: {class: Directory, location: scripts}
    doc: The Python tools
  chromosomes:
    type: string[]
    doc: Names of the chromosomes, as the outputs are to be called
  vcf:
    type: File[]
    doc: Their genotypes, each a plain-text VCF sorted by position
  annotation:
    type: File[]
    doc: Their variants annotated by VEP with SIFT scores, VCF, plain or gzip
  ranges:
    type: string[]
    doc: "One instance of individuals for each: 1ofN, 2ofN, ... NofN"
  populations:
    type: File[]
    doc: Sample names, one per line; the file's name is the population's
  frequency_field:
    type: string?
    doc: INFO field with the frequency that tells which allele is the minor one (EUR_AF)
  draws:
    type: int?
    doc: Random groups in frequency (1000)
steps:
  chromosome:
    run: chromosome-directories.cwl
    scatter: [chromosome, vcf, annotation]
    scatterMethod: dotproduct
    in:
      scripts: scripts
      chromosome: chromosomes
      vcf: vcf
      annotation: annotation
      ranges: ranges
      populations: populations
      frequency_field: frequency_field
      draws: draws
    out: [sifted, individuals, pairs, genes, histograms, summary]
outputs:
  sifted: {type: "File[]", outputSource: chromosome/sifted}
  individuals: {type: {type: array, items: {type: array, items: File}}, outputSource: chromosome/individuals}
  pairs: {type: {type: array, items: {type: array, items: File}}, outputSource: chromosome/pairs}
  genes: {type: {type: array, items: {type: array, items: File}}, outputSource: chromosome/genes}
  histograms: {type: {type: array, items: {type: array, items: File}}, outputSource: chromosome/histograms}
  summary: {type: {type: array, items: {type: array, items: File}}, outputSource: chromosome/summary}
