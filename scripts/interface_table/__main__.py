"""Writes docs/interfaces.md anew."""

from scripts.interface_table.document import PLACE, document

PLACE.write_text(document(), encoding="utf-8")
print(f"written: {PLACE}")
