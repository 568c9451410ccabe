"""Read sessions: which bytes of a file that many jobs read are brought into the page cache, and when. Pure.

After Jacob, Taylor, Kale: *CkIO: parallel file input for over-decomposed task-based systems*: few readers bring what
many consumers will need, in large requests and in the order of need.
"""
