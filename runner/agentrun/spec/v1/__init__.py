"""Version "1" of the spec language: the models of every document people write.

Rule 1  A field is documented under the field; the same words are the editor's hover (`spec/model_schemas.py` reads them).
Rule 2  A default lives here and nowhere else; absent means no limit, never zero.
Rule 3  Annotations here are real types, not texts: msgspec would otherwise spend 10 ms reading them on the first use.
Rule 4  Once a version "2" exists this package is frozen, and `spec/document_loader.py` gains one upgrade function.
"""
