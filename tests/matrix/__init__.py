"""The tool matrix: real programs as producers and consumers under each rule, compared with their native runs."""
