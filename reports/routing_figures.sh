#!/usr/bin/env bash
# Usage: reports/routing_figures.sh DIR
# Draws what `lazylora analyze --out DIR` wrote there, as DIR/prefix.svg, distance.svg, layers.svg and
# hits.svg. Needs gnuplot; without it nothing is drawn, and the exit code is 77.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
for table in layers prefix distance hits; do
  [ -f "$1/$table.tsv" ] || { echo "$1/$table.tsv: not there" >&2; exit 1; }
done
command -v gnuplot >/dev/null || { echo "skipped: gnuplot is not installed"; exit 77; }
cd "$1"

# With one text there are no hot sets of others.
hot=1
grep -q nan hits.tsv && hot=0

# One line a layer, from the first (light) to the last (dark).
pictures=(prefix.svg distance.svg layers.svg hits.svg)
rm -f "${pictures[@]}"
gnuplot -e "hot=$hot" - <<'PLOT'
set terminal svg size 720,440 font "sans-serif,13" background "white"
set datafile separator tab
set grid back lc rgb "#dddddd"
set key above noenhanced
set border 3
set tics nomirror
set palette defined (0 "#c6dbef", 1 "#08306b")
set cblabel "layer"

set output "prefix.svg"
set xlabel "tokens read"
set ylabel "distinct experts of a layer"
stats "prefix.tsv" using 1 every ::1 name "L" nooutput
set cbrange [L_min:L_max]
plot for [l=int(L_min):int(L_max)] "prefix.tsv" using ($1==l ? $2 : 1/0):3:1 every ::1 with lines lc palette notitle, \
     "prefix.tsv" using ($1==L_min ? $2 : 1/0):4 every ::1 with lines lw 2 dt 2 lc rgb "#cb181d" title "uniform"

set output "distance.svg"
set xlabel "distance of two tokens of a text"
set ylabel "mean Jaccard index"
set logscale x 2
plot for [l=int(L_min):int(L_max)] "distance.tsv" using ($1==l ? $2 : 1/0):4:1 every ::1 with linespoints pt 7 ps 0.3 lc palette notitle
unset logscale

set output "layers.svg"
set xlabel "layer"
set ylabel "distinct experts"
set y2label "Jaccard index of consecutive tokens"
set y2tics
set border 11
set xrange [L_min-0.5:L_max+0.5]
plot "layers.tsv" using 1:2 every ::1 with linespoints pt 7 ps 0.5 lc rgb "#08519c" title "distinct", \
     "layers.tsv" using 1:3 every ::1 with lines dt 2 lc rgb "#cb181d" title "uniform", \
     "layers.tsv" using 1:7 every ::1 axes x1y2 with linespoints pt 5 ps 0.4 lc rgb "#6a6a6a" title "jac_t (right)"
unset xrange
unset y2label
unset y2tics
set border 3

set output "hits.svg"
set xlabel "experts kept a layer"
set ylabel "share of requests met"
set xrange [*:*]
set yrange [0:1]
set logscale x 2
plot "hits.tsv" using 1:2 every ::1 with linespoints pt 7 ps 0.6 lc rgb "#08519c" title "LRU", \
     for [i=1:hot] "hits.tsv" using 1:3 every ::1 with linespoints pt 5 ps 0.6 lc rgb "#d94801" title "hot set, other texts"
PLOT
for picture in "${pictures[@]}"; do
  grep -q '</svg>' "$picture" || { echo "$1/$picture: gnuplot left no picture" >&2; exit 1; }
done
echo "$1: ${pictures[*]}"
