"""Programs that make the documentation: pages that follow from the code, pictures, the site.

Not a part of the package.
"""
