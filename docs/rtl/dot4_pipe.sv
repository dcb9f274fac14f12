// Answers each line of words a, b and c on standard input with d: for `tcusim unit --probe`.
module dot4_pipe;
    logic [63:0] a, b, x, y;
    logic [31:0] c, d, z;

    dot4 unit (.a(a), .b(b), .c(c), .d(d));

    initial begin
        while ($fscanf(32'h8000_0000, "%h %h %h", x, y, z) == 3) begin
            a = x;
            b = y;
            c = z;
            #1;
            $display("%h", d);
        end
        $finish;
    end
endmodule
