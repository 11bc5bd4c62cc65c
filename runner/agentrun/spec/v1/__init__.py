"""Version "1" of the spec language: the models of every YAML document that users write.

Rule 1  A field is documented under the field. `compiler/schema_files.py` copies the text into the JSON Schema, and editors
        show it as the hover.
Rule 2  A default is defined here and nowhere else. Absent means no limit, never zero.
Rule 3  Annotations are real types, not strings, because msgspec needs 10 ms to evaluate strings at the first use.
Rule 4  Once a version "2" exists this package is frozen, and `spec/document_loader.py` gets one upgrade function.
Rule 5  A model ends with `Spec` if `core/package*.py` or `testing` has a class for the same thing: `HttpToolSpec`.
"""
