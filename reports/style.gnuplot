set terminal svg size 720,360 font "sans-serif,13" background "white"
set datafile separator tab
set datafile missing "nan"
set grid back lc rgb "#dddddd"
set border 3
set tics nomirror
set yrange [0:*]
