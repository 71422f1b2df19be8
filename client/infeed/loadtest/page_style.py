"""Style sheet of the report's page, for light and dark, phones and wide screens."""

STYLE = """
:root { --ground: #f6f7f9; --card: #fff; --ink: #16202c; --soft: #55616f; --line: #dfe4ea;
  --good: #13714a; --bad: #b3261e; --good-ground: #e6f4ec; --bad-ground: #fdecea;
  --fair-ground: #fdf2e3; --middle: #f0d9a8;
  --c1: #1f5fbf; --c2: #b25a00; --c3: #8f2a63; --cpu: #16202c;
  --transform: #d98a3d; --source: #b0475e; --no_budget: #7a86c9; --no_request: #d5dbe3; }
@media (prefers-color-scheme: dark) { :root { --ground: #10151b; --card: #19212a; --ink: #e8edf2;
  --soft: #a3b0bd; --line: #303b47; --good: #6fd2a3; --bad: #ff9d92; --good-ground: #14301f;
  --bad-ground: #3b1a18; --fair-ground: #33240f; --middle: #6b5a35;
  --c1: #7db1ff; --c2: #ffb266; --c3: #f08ec0; --cpu: #f2f5f8;
  --transform: #a8672a; --source: #8f3a50; --no_budget: #56619e; --no_request: #35414e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 60px; display: grid; gap: 20px;
  grid-template-columns: minmax(0, 1fr); }
header p { margin: 0; color: var(--soft); }
.over { font-size: 13px; letter-spacing: .06em; text-transform: uppercase; }
h1 { margin: 0; font-size: 28px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 6px; font-size: 16px; }
.verdict { border-left: 5px solid var(--soft); background: var(--card); padding: 14px 18px;
  border-radius: 6px; }
.verdict p { margin: 0 0 4px; overflow-wrap: anywhere; }
.verdict strong { font-size: 17px; line-height: 1.4; }
.verdict.good { border-color: var(--good); background: var(--good-ground); }
.verdict.fair { border-color: var(--c2); background: var(--fair-ground); }
.verdict.bad { border-color: var(--bad); background: var(--bad-ground); }
.checks { list-style: none; margin: 8px 0 0; padding: 0; }
.checks .good { color: var(--good); } .checks .bad { color: var(--bad); font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px;
  margin: 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 12px 14px; }
.tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; font-size: 26px; font-weight: 600; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tile dd small { display: block; font-size: 13px; font-weight: 400; color: var(--soft); }
.tile.good dd { color: var(--good); } .tile.bad dd { color: var(--bad); }
.tile.good dd small, .tile.bad dd small { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 16px; align-items: start; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 14px 14px 8px; min-width: 0; }
figcaption p { margin: 0 0 4px; color: var(--soft); font-size: 13px; }
.key { margin-right: 12px; white-space: nowrap; display: inline-block; }
.key i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 5px;
  vertical-align: -1px; background: var(--soft); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.tick { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); stroke-width: 1; }
.shade { fill: var(--ink); opacity: .06; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.area { opacity: .16; } .tip { fill: transparent; } .tip:hover { fill: var(--ink); opacity: .08; }
.threshold { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 5 4; }
.mark line { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 2 3; }
.mark path { fill: var(--bad); }
.ramp { display: inline-block; width: 70px; height: 11px; border-radius: 2px;
  vertical-align: -1px;
  background: linear-gradient(90deg in oklab, var(--c1), var(--middle), var(--bad)); }
.line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); } .line.c3 { stroke: var(--c3); }
.area.c1, .dot.c1, .key .c1 { fill: var(--c1); background: var(--c1); }
.area.c2, .dot.c2, .key .c2 { fill: var(--c2); background: var(--c2); }
.area.c3, .dot.c3, .key .c3 { fill: var(--c3); background: var(--c3); }
.line.cpu { stroke: var(--cpu); stroke-dasharray: 5 3; }
.key .cpu { background: none; border-top: 2px dashed var(--cpu); height: 0; vertical-align: 3px; }
.layer.transform, .key .transform { fill: var(--transform); background: var(--transform); }
.layer.source, .key .source { fill: var(--source); background: var(--source); }
.layer.no_budget, .key .no_budget { fill: var(--no_budget); background: var(--no_budget); }
.layer.no_request, .key .no_request { fill: var(--no_request); background: var(--no_request); }
.big { font-size: 20px; margin: 0; align-self: center; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 12px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { color: var(--soft); font-weight: 500; font-size: 13px; }
th:first-child { text-align: left; }
ul { margin: 0; padding-left: 20px; } section li { overflow-wrap: anywhere; }
@media (max-width: 560px) { main { padding: 16px 12px 40px; } h1 { font-size: 23px; }
  .tile dd { font-size: 22px; } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tick { font-size: 19px; } }
@media print { .tip { display: none; } }
"""
