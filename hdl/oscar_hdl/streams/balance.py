"""How many there are of what comes and goes."""

from myhdl import always, block


@block
def balance(clk, rst, comes, goes, count):
    """Count up with `comes` and down with `goes`, strobes that may come in one clock."""

    @always(clk.posedge)
    def add_up():
        if comes and not goes:
            count.next = count + 1
        elif goes and not comes:
            count.next = count - 1
        if rst:
            count.next = 0

    return add_up
