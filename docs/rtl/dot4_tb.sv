// Compares dot4 with the vectors of `tcusim vectors dot4.toml --count 1000`, in the folder dot4_mma.
module dot4_tb #(
    parameter integer N = 1000
);
    logic [63:0] as[0:N-1], bs[0:N-1], a, b;
    logic [31:0] cs[0:N-1], ds[0:N-1], c, d;
    integer i, wrong;

    dot4 unit (.a(a), .b(b), .c(c), .d(d));

    initial begin
        $readmemh("dot4_mma/a.hex", as);
        $readmemh("dot4_mma/b.hex", bs);
        $readmemh("dot4_mma/c.hex", cs);
        $readmemh("dot4_mma/d.hex", ds);
        wrong = 0;
        for (i = 0; i < N; i = i + 1) begin
            a = as[i];
            b = bs[i];
            c = cs[i];
            #1;
            if (d !== ds[i]) begin
                if (wrong < 5) $display("case %0d: a %h, b %h, c %h: d is %h, due is %h", i, a, b, c, d, ds[i]);
                wrong = wrong + 1;
            end
        end
        $display("%0d of %0d cases are wrong", wrong, N);
        $finish;
    end
endmodule
