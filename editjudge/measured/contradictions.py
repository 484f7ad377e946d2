"""`editjudge.vision.contradictions` under its former name."""

from editjudge.vision.contradictions import contradictions

__all__ = ["contradictions"]
