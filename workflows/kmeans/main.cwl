cwlVersion: v1.2
class: Workflow
doc: k-means (Lloyd's algorithm) over fragments of points, with a checkpoint of each fragment in each iteration.
$namespaces: {cwltool: "http://commonwl.org/cwltool#"}
requirements:
  SubworkflowFeatureRequirement: {}
inputs:
  scripts:
    type: Directory
    default: {class: Directory, location: scripts}
    doc: The Python tools
  fragments:
    type: File[]
    doc: Points, a row each, as numpy.save writes them
  clusters:
    type: int
    doc: How many
  iterations:
    type: int
    default: 10
    doc: At most
  tolerance:
    type: float
    default: 0.0001
    doc: No more iterations once no centroid moves farther than this
  seed:
    type: int
    default: 1
    doc: Of the choice of the first centroids
steps:
  start:
    run: tools/start.cwl
    in: {scripts: scripts, fragments: fragments, clusters: clusters, seed: seed}
    out: [centroids, history]
  iteration:
    run: iteration.cwl
    requirements:
      cwltool:Loop:
        loopWhen: $(inputs.more)
        loop: {centroids: moved, history: longer, more: more}
        outputMethod: last
    in:
      scripts: scripts
      fragments: fragments
      centroids: start/centroids
      history: start/history
      iterations: iterations
      tolerance: tolerance
      more: {default: true}
    out: [moved, longer, more, checkpoints]
outputs:
  centroids: {type: File, outputSource: iteration/moved}
  history: {type: File, outputSource: iteration/longer}
  checkpoints: {type: "File[]", outputSource: iteration/checkpoints}
