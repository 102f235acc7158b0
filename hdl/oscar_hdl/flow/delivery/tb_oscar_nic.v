// Test bench of oscar_nic, with one unit and a bus of 64 bits: performs the actions of a file.
//
//     $ iverilog -g2005 -o tb $(cat verilog/oscar_nic.f) sim/tb_oscar_nic.v
//     $ vvp tb
//
// or with Verilator 5
//
//     $ verilator --binary --timing -Wno-lint --top tb_oscar_nic $(cat verilog/oscar_nic.f) sim/tb_oscar_nic.v
//     $ obj_dir/Vtb_oscar_nic
//
// sim/tb_oscar_nic.vhd does the same in VHDL, and lists the actions. +vectors=FILE names another file, +trace
// writes the waveform oscar_nic.vcd. The bench ends with an error at the first word that is not as expected.

`timescale 1ns/1ps

module tb_oscar_nic;
    localparam PATIENCE = 20000;  // clocks to wait for anything
    localparam [7:0] PEER = 8'd2;
    // Places of what `await` waits for.
    localparam WREADY = 0, BVALID = 1, ARREADY = 2, RVALID = 3, VALUES = 4, SIDE = 5, READ = 6, RX = 7;
    localparam TX = 8, SUMS = 9;

    reg clk = 0, rst = 1;
    reg [7:0] awaddr = 0, araddr = 0, rx_keep = 0;
    reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
    reg [31:0] wdata = 0;
    wire [31:0] rdata;
    wire [1:0] bresp, rresp;
    wire awready, wready, bvalid, arready, rvalid, irq;
    reg [63:0] rx_data = 0, read_data = 0;
    reg [127:0] values_data = 0, side_data = 0;
    reg rx_valid = 0, rx_last = 0, read_valid = 0, read_last = 0, values_valid = 0, values_last = 0;
    reg side_valid = 0, side_last = 0, tx_ready = 0, sums_ready = 0;
    wire rx_ready, read_ready, values_ready, side_ready, tx_valid, tx_last, sums_valid, sums_last;
    wire [63:0] tx_data;
    wire [7:0] tx_keep, tx_dest;
    wire [127:0] sums_data;
    wire [9:0] flags = {
        sums_valid, tx_valid, rx_ready, read_ready, side_ready, values_ready, rvalid, arready, bvalid, wready
    };

    reg [8*80-1:0] name, text;
    reg [7:0] kind, address, keep, last;
    reg [31:0] data, mask;
    reg [127:0] word;
    integer file, number, checked, got, n;

    always #2.5 clk = ~clk;

    oscar_nic dut (
        .clk(clk), .rst(rst), .irq(irq),
        .s_axil_awaddr(awaddr), .s_axil_awvalid(awvalid), .s_axil_awready(awready), .s_axil_wdata(wdata),
        .s_axil_wstrb(4'hf), .s_axil_wvalid(wvalid), .s_axil_wready(wready), .s_axil_bresp(bresp),
        .s_axil_bvalid(bvalid), .s_axil_bready(bready), .s_axil_araddr(araddr), .s_axil_arvalid(arvalid),
        .s_axil_arready(arready), .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid),
        .s_axil_rready(rready),
        .s_axis_rx_tdata(rx_data), .s_axis_rx_tvalid(rx_valid), .s_axis_rx_tready(rx_ready),
        .s_axis_rx_tlast(rx_last), .s_axis_rx_tkeep(rx_keep), .s_axis_rx_tid(PEER),
        .m_axis_tx_tdata(tx_data), .m_axis_tx_tvalid(tx_valid), .m_axis_tx_tready(tx_ready),
        .m_axis_tx_tlast(tx_last), .m_axis_tx_tkeep(tx_keep), .m_axis_tx_tdest(tx_dest),
        .s_axis_values_tdata(values_data), .s_axis_values_tvalid(values_valid),
        .s_axis_values_tready(values_ready), .s_axis_values_tlast(values_last),
        .s_axis_side_tdata(side_data), .s_axis_side_tvalid(side_valid), .s_axis_side_tready(side_ready),
        .s_axis_side_tlast(side_last),
        .s_axis_read_tdata(read_data), .s_axis_read_tvalid(read_valid), .s_axis_read_tready(read_ready),
        .s_axis_read_tlast(read_last),
        .m_axis_values_tdata(sums_data), .m_axis_values_tvalid(sums_valid), .m_axis_values_tready(sums_ready),
        .m_axis_values_tlast(sums_last),
        .m_axis_descriptors_tdata(), .m_axis_descriptors_tvalid(), .m_axis_descriptors_tready(1'b1),
        .m_axis_descriptors_tlast(),
        .s_axis_list_tdata(64'd0), .s_axis_list_tvalid(1'b0), .s_axis_list_tready(), .s_axis_list_tlast(1'b0)
    );

    // Inputs change at falling edges. Wait until a flag is 1 before a rising edge, and return before that edge.
    task await(input integer place);
        begin
            #1;
            for (n = 0; n < PATIENCE && !flags[place]; n = n + 1) begin
                @(negedge clk);
                #1;
            end
            if (!flags[place]) begin
                $display("line %0d: nothing in %0d clocks", number, PATIENCE);
                $stop;
            end
        end
    endtask

    task check(input [8*20-1:0] what, input [127:0] is, input [127:0] expected);
        if (is !== expected) begin
            $display("line %0d: %0s is %h, expected %h", number, what, is, expected);
            $stop;
        end
    endtask

    task write_register;
        begin
            got = $fscanf(file, "%h %h", address, data);
            awaddr = address; wdata = data; awvalid = 1; wvalid = 1;
            await(WREADY);
            @(negedge clk);
            awvalid = 0; wvalid = 0; bready = 1;
            await(BVALID);
            check("response", bresp, 0);
            @(negedge clk);
            bready = 0;
        end
    endtask

    task read_register(input polls);
        integer reads;
        reg done;
        begin
            got = $fscanf(file, "%h %h %h", address, data, mask);
            done = 0;
            for (reads = 0; reads < PATIENCE && !done; reads = reads + 1) begin
                araddr = address; arvalid = 1;
                await(ARREADY);
                @(negedge clk);
                arvalid = 0; rready = 1;
                await(RVALID);
                check("response", rresp, 0);
                done = !polls || (rdata & mask) == data;
                word = rdata & mask;
                @(negedge clk);
                rready = 0;
            end
            check("register", word, data);
        end
    endtask

    task give;
        begin
            if (kind == "X") got = $fscanf(file, "%h %h %h", word, keep, last);
            else got = $fscanf(file, "%h %h", word, last);
            case (kind)
                "V": begin
                    values_data = word; values_last = last[0]; values_valid = 1;
                    await(VALUES);
                    @(negedge clk);
                    values_valid = 0;
                end
                "S": begin
                    side_data = word; side_last = last[0]; side_valid = 1;
                    await(SIDE);
                    @(negedge clk);
                    side_valid = 0;
                end
                "Q": begin
                    read_data = word[63:0]; read_last = last[0]; read_valid = 1;
                    await(READ);
                    @(negedge clk);
                    read_valid = 0;
                end
                default: begin
                    rx_data = word[63:0]; rx_keep = keep; rx_last = last[0]; rx_valid = 1;
                    await(RX);
                    @(negedge clk);
                    rx_valid = 0;
                end
            endcase
        end
    endtask

    task expect_frame;
        integer lane;
        begin
            got = $fscanf(file, "%h %h %h", word, keep, last);
            tx_ready = 1;
            await(TX);
            for (lane = 0; lane < 8; lane = lane + 1)
                if (keep[lane]) check("byte of m_axis_tx", tx_data[8*lane +: 8], word[8*lane +: 8]);
            check("m_axis_tx_tkeep", tx_keep, keep);
            check("m_axis_tx_tlast", tx_last, last[0]);
            check("m_axis_tx_tdest", tx_dest, PEER);
            @(negedge clk);
            tx_ready = 0;
        end
    endtask

    task expect_sums;
        begin
            got = $fscanf(file, "%h %h", word, last);
            sums_ready = 1;
            await(SUMS);
            check("m_axis_values", sums_data, word);
            check("m_axis_values_tlast", sums_last, last[0]);
            @(negedge clk);
            sums_ready = 0;
        end
    endtask

    initial begin
        if (!$value$plusargs("vectors=%s", name)) name = "sim/oscar_nic.vectors";
        if ($test$plusargs("trace")) begin
            $dumpfile("oscar_nic.vcd");
            $dumpvars;
        end
        repeat (4) @(negedge clk);
        rst = 0;
        file = $fopen(name, "r");
        if (file == 0) begin
            $display("tb_oscar_nic: failed, no file %0s", name);
            $stop;
        end
        number = 0;
        checked = 0;
        while ($fscanf(file, " %c", kind) == 1) begin
            number = number + 1;
            case (kind)
                "#": begin
                    got = $fgets(text, file);
                    $write("%0d ns:%0s", $time, text);
                end
                "W": write_register;
                "R": read_register(0);
                "P": read_register(1);
                "T": expect_frame;
                "M": expect_sums;
                "N": begin
                    got = $fscanf(file, "%h", data);
                    repeat (data) @(negedge clk);
                end
                "V", "S", "Q", "X": give;
                default: begin
                    $display("tb_oscar_nic: failed, unknown action %0s", kind);
                    $stop;
                end
            endcase
            if (kind == "T" || kind == "M" || kind == "R") checked = checked + 1;
        end
        $display("tb_oscar_nic: passed, %0d lines, %0d words checked", number, checked);
        $finish;
    end
endmodule
