// Compares dot4 with the rule in C, through DPI-C, on operands of any bits: half of them near 1.
module dot4_dpi_tb #(
    parameter integer N = 100000
);
    import "DPI-C" function void golden_mma(
        input bit [63:0] a,
        input bit [63:0] b,
        input bit [31:0] c,
        output bit [31:0] d
    );

    bit [63:0] a, b;
    bit [31:0] c, due;
    logic [31:0] d;
    integer i, wrong;

    dot4 unit (.a(a), .b(b), .c(c), .d(d));

    initial begin
        wrong = 0;
        for (i = 0; i < N; i = i + 1) begin
            a = {$urandom, $urandom};
            b = {$urandom, $urandom};
            c = $urandom;
            if (i % 2 == 1) begin
                // Exponents from -4 to 3, so that terms meet.
                a = (a & 64'h8fff8fff8fff8fff) + 64'h2c002c002c002c00;
                b = (b & 64'h8fff8fff8fff8fff) + 64'h2c002c002c002c00;
                c = (c & 32'h83ffffff) + 32'h3c000000;
            end
            #1;
            golden_mma(a, b, c, due);
            if (d !== due) begin
                if (wrong < 5) $display("case %0d: a %h, b %h, c %h: d is %h, due is %h", i, a, b, c, d, due);
                wrong = wrong + 1;
            end
        end
        $display("%0d of %0d cases are wrong", wrong, N);
        $finish;
    end
endmodule
