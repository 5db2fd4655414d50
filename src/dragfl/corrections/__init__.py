"""What clients do beyond plain SGD: one paper, one file."""

from dragfl.corrections.none import NoCorrection

CORRECTIONS = {"none": NoCorrection}
