#!/usr/bin/env bash
# Usage: reports/render.sh BUILD_DIR DIR
# What `lazylora eval --out DIR` recorded, as DIR/report.md and DIR/report.html with figures. Without gnuplot
# the pages say that figures were not drawn.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 BUILD_DIR DIR" >&2; exit 2; }
render=$1/reports/render_eval dir=$2
"$render" tables "$dir"
rm -f "$dir/loss.svg" "$dir/layers.svg" "$dir/routing.svg"

# draw TABLE: gnuplot on standard input, in DIR, if the table has more than its head.
draw() {
  [ "$(wc -l <"$dir/$1.tsv")" -gt 1 ] && command -v gnuplot >/dev/null || return 0
  { cat "$(dirname "$0")/style.gnuplot" && printf 'set output "%s.svg"\n' "$1" && cat; } | (cd "$dir" && gnuplot)
  grep -q '</svg>' "$dir/$1.svg" || { echo "$dir/$1.svg: gnuplot left no picture" >&2; exit 1; }
}
draw loss <<'PLOT'
set xlabel "step"
set ylabel "loss, nats a token"
plot "loss.tsv" using 1:2 every ::1 with linespoints pt 7 ps 0.5 lw 2 lc rgb "#08519c" notitle
PLOT
second=', "" using 1:3 every ::1 axes x1y2 with linespoints pt 5 ps 0.6 lc rgb "#d94801" title "gradient (right)"'
right='set y2label "norm of the gradient"; set y2tics; set y2range [0:*]; set border 11'
if grep -q nan "$dir/layers.tsv"; then second='' right=''; fi # no gradient was asked for
draw layers <<PLOT
set xlabel "layer"
set ylabel "norm of the change"
set key above
set style fill solid 0.5
set boxwidth 0.7
$right
plot "layers.tsv" using 1:2 every ::1 with boxes lc rgb "#08519c" title "change of the weights"$second
PLOT
# A colour a task.
draw routing <<'PLOT'
set xlabel "layer"
set ylabel "adapter against base"
set key above noenhanced
stats "routing.tsv" using 1 every ::1 name "layer" nooutput
stats "routing.tsv" matrix rowheaders columnheaders name "all" nooutput
if (layer_max - layer_min < 20) {set xtics 1}
set yrange [0:1] # not before: what stats counts has to lie in it
set xrange [layer_min - 0.5:layer_max + 0.5]
tasks = int(all_size_x / 2)
if (tasks > 8) {unset key}
plot for [i=1:tasks] "routing.tsv" using 1:(column(2 * i)) with linespoints pt 7 ps 0.5 lw 2 lc i title columnheader(2 * i), \
     for [i=1:tasks] "" using 1:(column(2 * i + 1)) with linespoints pt 6 ps 0.5 dt 2 lc i notitle, \
     NaN with lines lw 2 lc rgb "#222222" title "Jaccard index", NaN with lines dt 2 lc rgb "#222222" title "share of tokens with the same experts"
PLOT
"$render" pages "$dir"
echo "$dir/report.html and report.md"
