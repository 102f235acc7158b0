-- Test bench of oscar_nic, with one unit and a bus of 64 bits: performs the actions of a file.
--
--     ghdl -a --std=08 $(cat oscar_nic.f) sim/tb_oscar_nic.vhd
--     ghdl --elab-run --std=08 tb_oscar_nic --wave=oscar_nic.ghw
--
-- An action is a line: a letter, and hexadecimal numbers after it.
--
--     W address data             write a register
--     R address data mask        read a register: expect data where mask is 1
--     P address data mask        read a register until it is so
--     V data last                give a word to s_axis_values
--     S data last                give a word to s_axis_side
--     Q data last                give a word to s_axis_read
--     X data keep last           give a word to s_axis_rx, as from peer 2
--     T data keep last           expect a word of m_axis_tx, to peer 2
--     M data last                expect a word of m_axis_values
--     N clocks                   wait
--     # text                     print the text
--
-- The bench ends with an error at the first word that is not as expected.

library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use std.textio.all;
use std.env.finish;

entity tb_oscar_nic is
    generic (
        vectors: string := "sim/oscar_nic.vectors";
        patience: positive := 20000  -- clocks to wait for anything
    );
end entity;

architecture sim of tb_oscar_nic is
    constant PERIOD: time := 5 ns;
    constant PEER: std_logic_vector(7 downto 0) := X"02";

    signal clk: std_logic := '0';
    signal rst: std_logic := '1';
    signal irq: std_logic;
    signal awaddr, araddr: std_logic_vector(7 downto 0) := (others => '0');
    signal awvalid, awready, wvalid, wready, bvalid, bready: std_logic := '0';
    signal arvalid, arready, rvalid, rready: std_logic := '0';
    signal wdata, rdata: std_logic_vector(31 downto 0) := (others => '0');
    signal bresp, rresp: std_logic_vector(1 downto 0);
    signal rx_data, tx_data, read_data: std_logic_vector(63 downto 0) := (others => '0');
    signal rx_keep, tx_keep, tx_dest: std_logic_vector(7 downto 0) := (others => '0');
    signal rx_valid, rx_ready, rx_last, tx_valid, tx_ready, tx_last: std_logic := '0';
    signal values_data, side_data, sums_data: std_logic_vector(127 downto 0) := (others => '0');
    signal values_valid, values_ready, values_last, side_valid, side_ready, side_last: std_logic := '0';
    signal read_valid, read_ready, read_last, sums_valid, sums_ready, sums_last: std_logic := '0';
begin
    clk <= not clk after PERIOD / 2;

    dut: entity work.oscar_nic
        port map (
            clk => clk, rst => rst, irq => irq,
            s_axil_awaddr => awaddr, s_axil_awvalid => awvalid, s_axil_awready => awready,
            s_axil_wdata => wdata, s_axil_wstrb => "1111", s_axil_wvalid => wvalid, s_axil_wready => wready,
            s_axil_bresp => bresp, s_axil_bvalid => bvalid, s_axil_bready => bready,
            s_axil_araddr => araddr, s_axil_arvalid => arvalid, s_axil_arready => arready,
            s_axil_rdata => rdata, s_axil_rresp => rresp, s_axil_rvalid => rvalid, s_axil_rready => rready,
            s_axis_rx_tdata => rx_data, s_axis_rx_tvalid => rx_valid, s_axis_rx_tready => rx_ready,
            s_axis_rx_tlast => rx_last, s_axis_rx_tkeep => rx_keep, s_axis_rx_tid => PEER,
            m_axis_tx_tdata => tx_data, m_axis_tx_tvalid => tx_valid, m_axis_tx_tready => tx_ready,
            m_axis_tx_tlast => tx_last, m_axis_tx_tkeep => tx_keep, m_axis_tx_tdest => tx_dest,
            s_axis_values_tdata => values_data, s_axis_values_tvalid => values_valid,
            s_axis_values_tready => values_ready, s_axis_values_tlast => values_last,
            s_axis_side_tdata => side_data, s_axis_side_tvalid => side_valid,
            s_axis_side_tready => side_ready, s_axis_side_tlast => side_last,
            s_axis_read_tdata => read_data, s_axis_read_tvalid => read_valid,
            s_axis_read_tready => read_ready, s_axis_read_tlast => read_last,
            m_axis_values_tdata => sums_data, m_axis_values_tvalid => sums_valid,
            m_axis_values_tready => sums_ready, m_axis_values_tlast => sums_last,
            m_axis_descriptors_tdata => open, m_axis_descriptors_tvalid => open,
            m_axis_descriptors_tready => '1', m_axis_descriptors_tlast => open,
            s_axis_list_tdata => (others => '0'), s_axis_list_tvalid => '0', s_axis_list_tready => open,
            s_axis_list_tlast => '0'
        );

    perform: process
        file actions: text;
        variable action: line;
        variable kind: character;
        variable number, checked: natural := 0;

        -- Pass rising edges until a signal is 1 at one.
        procedure await(signal flag: in std_logic; constant what: in string) is
        begin
            for clocks in 1 to patience loop
                wait until rising_edge(clk);
                if flag = '1' then
                    return;
                end if;
            end loop;
            report "line " & to_string(number) & ": no " & what & " in " & to_string(patience) & " clocks"
                severity failure;
        end procedure;

        procedure check(constant what: in string; constant got, expected: in std_logic_vector) is
        begin
            if got /= expected then
                report "line " & to_string(number) & ": " & what & " is " & to_hstring(got) & ", expected "
                    & to_hstring(expected) severity failure;
            end if;
        end procedure;

        procedure write_register is
            variable address: std_logic_vector(7 downto 0);
            variable data: std_logic_vector(31 downto 0);
        begin
            hread(action, address);
            hread(action, data);
            awaddr <= address;
            wdata <= data;
            awvalid <= '1';
            wvalid <= '1';
            await(wready, "s_axil_wready");
            awvalid <= '0';
            wvalid <= '0';
            bready <= '1';
            await(bvalid, "s_axil_bvalid");
            bready <= '0';
            check("response to a write", bresp, "00");
        end procedure;

        procedure read_register(constant polls: in boolean) is
            variable address: std_logic_vector(7 downto 0);
            variable data, mask: std_logic_vector(31 downto 0);
        begin
            hread(action, address);
            hread(action, data);
            hread(action, mask);
            for reads in 1 to patience loop
                araddr <= address;
                arvalid <= '1';
                await(arready, "s_axil_arready");
                arvalid <= '0';
                rready <= '1';
                await(rvalid, "s_axil_rvalid");
                rready <= '0';
                check("response to a read", rresp, "00");
                exit when not polls or (rdata and mask) = data;
            end loop;
            check("register " & to_hstring(address), rdata and mask, data);
        end procedure;

        procedure give(
            signal data: out std_logic_vector; signal valid, last: out std_logic; signal ready: in std_logic;
            constant ends: in std_logic_vector(3 downto 0); constant word: in std_logic_vector
        ) is
        begin
            data <= word;
            last <= ends(0);
            valid <= '1';
            await(ready, "ready");
            valid <= '0';
        end procedure;

        procedure stream(constant which: in character) is
            variable wide: std_logic_vector(127 downto 0);
            variable narrow: std_logic_vector(63 downto 0);
            variable keep: std_logic_vector(7 downto 0);
            variable ends: std_logic_vector(3 downto 0);
        begin
            case which is
                when 'V' | 'S' | 'M' => hread(action, wide);
                when others => hread(action, narrow);
            end case;
            if which = 'X' or which = 'T' then
                hread(action, keep);
            end if;
            hread(action, ends);
            case which is
                when 'V' => give(values_data, values_valid, values_last, values_ready, ends, wide);
                when 'S' => give(side_data, side_valid, side_last, side_ready, ends, wide);
                when 'Q' => give(read_data, read_valid, read_last, read_ready, ends, narrow);
                when 'X' =>
                    rx_keep <= keep;
                    give(rx_data, rx_valid, rx_last, rx_ready, ends, narrow);
                when 'T' =>
                    tx_ready <= '1';
                    await(tx_valid, "m_axis_tx_tvalid");
                    tx_ready <= '0';
                    for n in 0 to 7 loop
                        if keep(n) = '1' then
                            check("byte of m_axis_tx", tx_data(8*n + 7 downto 8*n), narrow(8*n + 7 downto 8*n));
                        end if;
                    end loop;
                    check("m_axis_tx_tkeep", tx_keep, keep);
                    check("m_axis_tx_tlast", (0 => tx_last), ends(0 downto 0));
                    check("m_axis_tx_tdest", tx_dest, PEER);
                when others =>
                    sums_ready <= '1';
                    await(sums_valid, "m_axis_values_tvalid");
                    sums_ready <= '0';
                    check("word of m_axis_values", sums_data, wide);
                    check("m_axis_values_tlast", (0 => sums_last), ends(0 downto 0));
            end case;
        end procedure;

        variable count: std_logic_vector(31 downto 0);
    begin
        for clocks in 1 to 4 loop
            wait until rising_edge(clk);
        end loop;
        rst <= '0';
        file_open(actions, vectors, read_mode);
        while not endfile(actions) loop
            readline(actions, action);
            number := number + 1;
            next when action'length = 0;
            read(action, kind);
            case kind is
                when '#' => report action.all;
                when 'W' => write_register;
                when 'R' => read_register(false);
                when 'P' => read_register(true);
                when 'V' | 'S' | 'Q' | 'X' | 'T' | 'M' => stream(kind);
                when 'N' =>
                    hread(action, count);
                    for clocks in 1 to to_integer(unsigned(count)) loop
                        wait until rising_edge(clk);
                    end loop;
                when others => report "line " & to_string(number) & ": no action " & kind severity failure;
            end case;
            if kind = 'T' or kind = 'M' or kind = 'R' then
                checked := checked + 1;
            end if;
        end loop;
        report "tb_oscar_nic: passed, " & to_string(number) & " lines, " & to_string(checked) & " words checked";
        finish;
    end process;
end architecture;
