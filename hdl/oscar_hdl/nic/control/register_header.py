"""The registers of oscar_nic as a C header for drivers, from the table that the hardware reads.

`python -m oscar_hdl.nic.control.register_header` prints it; `make vhdl` writes it beside the RTL.
"""

from oscar_hdl.nic.control.registers import REGISTERS, VERSION

NAME = "oscar_nic.h"
HEAD = f"""/* Registers of oscar_nic, version {VERSION}: byte offsets; the lowest bit and mask of each field.
   Made from oscar_hdl/nic/control/registers.py, which the hardware reads; do not edit. registers.md says
   what they do. */
#ifndef OSCAR_NIC_H
#define OSCAR_NIC_H

#define OSCAR_REGISTERS_VERSION {VERSION}
"""


def header() -> str:
    """Return the text of oscar_nic.h."""
    lines = [HEAD]
    for register in REGISTERS:
        name = f"OSCAR_{register.name.upper()}"
        text = " ".join(register.text.split()).replace("*/", "* /")
        lines.append(f"#define {name} 0x{register.offset:02x} /* {register.access}: {text} */")
        for field in register.fields:
            of = f"{name}_{field.name.upper()}"
            lines += [f"#define {of}_SHIFT {field.low}", f"#define {of}_MASK 0x{field.mask:08x}u"]
    return "\n".join([*lines, "", "#endif", ""])


if __name__ == "__main__":
    print(header(), end="")
