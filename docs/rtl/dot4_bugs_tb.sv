// How many cases find each of the planted bugs of dot4. Instance 0 has none.
module dot4_bugs_tb #(
    parameter integer N = 1000,
    parameter integer BUGS = 22
);
    logic [63:0] as[0:N-1], bs[0:N-1], a, b;
    logic [31:0] cs[0:N-1], ds[0:N-1], c;
    logic [31:0] d[0:BUGS];
    integer wrong[0:BUGS], first[0:BUGS];
    integer i, bug, found;

    genvar g;
    generate
        for (g = 0; g <= BUGS; g = g + 1) begin : units
            dot4 #(.BUG(g)) unit (.a(a), .b(b), .c(c), .d(d[g]));
        end
    endgenerate

    initial begin
        $readmemh("dot4_mma/a.hex", as);
        $readmemh("dot4_mma/b.hex", bs);
        $readmemh("dot4_mma/c.hex", cs);
        $readmemh("dot4_mma/d.hex", ds);
        for (bug = 0; bug <= BUGS; bug = bug + 1) wrong[bug] = 0;
        for (i = 0; i < N; i = i + 1) begin
            a = as[i];
            b = bs[i];
            c = cs[i];
            #1;
            for (bug = 0; bug <= BUGS; bug = bug + 1)
                if (d[bug] !== ds[i]) begin
                    if (wrong[bug] == 0) first[bug] = i;
                    wrong[bug] = wrong[bug] + 1;
                end
        end
        found = 0;
        for (bug = 1; bug <= BUGS; bug = bug + 1) begin
            if (wrong[bug] > 0) found = found + 1;
            if (wrong[bug] > 0) $display("bug %0d: %0d cases, first %0d", bug, wrong[bug], first[bug]);
            else $display("bug %0d: not found", bug);
        end
        $display("%0d of %0d bugs found; the right design: %0d of %0d cases are wrong", found, BUGS, wrong[0], N);
        $finish;
    end
endmodule
