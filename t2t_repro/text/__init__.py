"""Raw text, test sets, trees and vocabularies."""
