cwlVersion: v1.2
class: Workflow
doc: One iteration over all fragments.
requirements:
  ScatterFeatureRequirement: {}
  SubworkflowFeatureRequirement: {}
inputs:
  scripts: Directory
  fragments: File[]
  centroids: File
  history: File
  iterations: int
  tolerance: float
steps:
  fragment:
    run: fragment.cwl
    scatter: fragment
    in: {scripts: scripts, fragment: fragments, centroids: centroids}
    out: [sums, checkpoint]
  update:
    run: tools/update.cwl
    in:
      scripts: scripts
      centroids: centroids
      history: history
      sums: fragment/sums
      iterations: iterations
      tolerance: tolerance
    out: [moved, longer, more]
outputs:
  moved: {type: File, outputSource: update/moved}
  longer: {type: File, outputSource: update/longer}
  more: {type: boolean, outputSource: update/more}
  checkpoints: {type: "File[]", outputSource: fragment/checkpoint}
