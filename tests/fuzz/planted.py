"""A parser with a bug that hardly any input meets: who looks for it must see which lines an input has reached."""


def parse(data: bytes) -> str:
    """Three bytes in a row that are as they should not be."""
    if data[:1] == b"{":
        opened = "an object"
        if data[1:2] == b"\x07":
            opened = "an object with a bell"
            if data[2:3] == b"<":
                raise ValueError("planted")
        return opened
    return "nothing"
